import { describe, expect, it } from "vitest";
import { isBlank, showAlone, showAround, showPiece, showText } from "../src/tokens/visible";

describe("a piece", () => {
  it.each([
    [" the", "the"],
    ["", "∅"],
    [" ", "␣"],
    ["  ", "␣␣"],
    ["\n", "↵"],
    ["\r\n", "↵"],
    ["\n\n", "↵↵"],
    ["\t", "⇥"],
    ["a\tb", "a⇥b"],
    ["\u0000", "␀"],
    ["\u001b", "␛"],
    ["\u007f", "␡"],
    ["\u00a0", "⍽"],
    ["\ud83d", "\ufffd"],
    ["\udc00", "\ufffd"],
    ["🦊", "🦊"],
    ["👩‍👧", "👩‍👧"],
    ["\u200d", "‹ZWJ›"],
    ["\u202eabc", "‹RLO›abc"],
    ["\u2069", "‹PDI›"],
    ["\u0301", "◌\u0301"],
    ["שלום", "שלום"],
    ["<b>&amp;", "<b>&amp;"],
    ["end.\n", "end.↵"],
  ])("%j is shown as %j", (piece, shown) => {
    expect(showAlone(piece)).toBe(shown);
  });

  // SmolLM2 makes "Ġconstructor" of ordinary JavaScript.
  it.each(Object.getOwnPropertyNames(Object.prototype))("that is %j is shown as it is", (name) => {
    expect(showAlone(name)).toBe(name);
    expect(showPiece(` ${name}\n`)).toEqual({ before: " ", token: `${name}↵`, after: "\n" });
    expect(showAround([name, name])).toBe(name + name);
    expect(showText(name)).toBe(name);
    expect(isBlank(name)).toBe(false);
  });

  it("keeps its spaces before and its line breaks after the token", () => {
    expect(showPiece("    return\n\n")).toEqual({
      before: "    ",
      token: "return↵↵",
      after: "\n\n",
    });
    expect(showPiece("\n")).toEqual({ before: "", token: "↵", after: "\n" });
    expect(showPiece("a\nb")).toEqual({ before: "", token: "a↵\nb", after: "" });
  });

  it("that could not be seen is known", () => {
    expect(["", " ", "\n", "\u0000", "\u200b"].map(isBlank)).toEqual(Array(5).fill(true));
    expect(["a", " a", ".", "🦊"].map(isBlank)).toEqual(Array(4).fill(false));
  });

  it("stands with its neighbours on one line", () => {
    expect(showAround(["The", " end", ".", "\n"])).toBe("The end.↵");
  });
});
