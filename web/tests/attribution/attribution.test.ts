import { describe, expect, it } from "vitest";
import { readAttribution } from "../../src/attribution/data/read-attribution";
import {
  knownFor,
  looksOf,
  mostFor,
  nameOf,
  piecesOf,
  ranked,
  scoresFor,
  strongestHead,
} from "../../src/attribution/data/scores";
import { fromAddress, toAddress } from "../../src/attribution/look/address";
import { coloursAt } from "../../src/colours/ink";
import { scale } from "../../src/colours/scale";
import { effectInFigures } from "../../src/look/figures";
import { showText } from "../../src/tokens/visible";
import { someAttribution } from "./made";

const found = someAttribution();

describe("the JSON of a page", () => {
  it("is read", () => {
    expect(readAttribution(JSON.stringify(found))).toEqual(found);
  });

  it.each([
    ["{", "damaged or cut short"],
    [JSON.stringify({ ...found, version: 7 }), "version 7"],
    [JSON.stringify({ ...found, passages: [] }), "no passages"],
  ])("that cannot be read says so", (json, words) => {
    expect(() => readAttribution(json)).toThrow(words);
  });
});

describe("scores", () => {
  it("are those of a word, or of the whole", () => {
    expect(scoresFor(found, null)).toEqual(found.scores);
    expect(scoresFor(found, 1)).toEqual([-0.5, 0.25, 0]);
    expect(scoresFor({ ...found, by_token: null }, 1)).toEqual(found.scores);
  });

  it("of hidden passages are what the answer lost", () => {
    expect(knownFor(found, null)).toEqual([0.75, -0.25, 0.5]);
    expect(knownFor(found, 0)).toEqual(scoresFor(found, 0));
    expect(knownFor({ ...found, how: "attention" }, null)).toEqual(found.scores);
  });

  it("are named by the beginning of their passage", () => {
    expect(nameOf(found, 2)).toBe("“Three are”");
    const prompt = [...found.prompt.slice(0, 5), `[2] ${"word ".repeat(20)}`, " are"];
    expect(nameOf({ ...found, prompt }, 2)).toBe(`“[2]${" word".repeat(7)}…”`);
  });

  it("have one scale for all words", () => {
    expect([mostFor(found, null), mostFor(found, 0), mostFor(found, 1)]).toEqual([0.75, 1, 1]);
  });

  it("are ranked with their signs, equal ones in the order of the prompt", () => {
    expect(ranked(found.scores)).toEqual([0, 2, 1]);
  });

  it("are of passages without the spaces around them", () => {
    const spaced = { ...found, prompt: ["One", " is", "\n", " Two ", "\n", "\nThree", " are\n"] };
    expect([0, 1, 2].map((passage) => piecesOf(spaced, passage).join(""))).toEqual([
      "One is",
      "Two",
      "Three are",
    ]);
  });

  it("are written with their signs", () => {
    expect([0, 0.8124, -0.0313].map(effectInFigures)).toEqual(["+0.000", "+0.812", "−0.031"]);
  });
});

describe("heads", () => {
  it("are strong by size", () => {
    expect(strongestHead(found, 1)).toEqual({ layer: 1, head: 0 });
    expect(strongestHead({ ...found, by_head: null }, 1)).toBeNull();
  });

  it("have rows if the page has them", () => {
    expect(looksOf(found, 1, { layer: 1, head: 0 })?.keys).toEqual([-0.375]);
    expect(looksOf(found, 1, { layer: 0, head: 0 })).toBeUndefined();
  });
});

describe("the address", () => {
  it("restores what was seen", () => {
    const state = { word: 1, passage: 2, head: { layer: 1, head: 0 } };
    expect(fromAddress(`#${toAddress(state)}`, found)).toEqual(state);
  });

  it.each(["#passage=3&word=2&head=2.0", "#passage=-1&word=x&head=1", "#%%%"])(
    "that makes no sense is ignored: %s",
    (hash) => {
      expect(fromAddress(hash, found)).toEqual({});
    },
  );
});

describe("colours", () => {
  it("have 0 in the middle, and text that can be read", () => {
    const made = scale(found.colours.light);
    expect(coloursAt(made, 0)).toEqual(["rgb(255 0 0)", "#000000"]);
    expect(coloursAt(made, 1)).toEqual(["rgb(0 0 255)", "#ffffff"]);
    expect(coloursAt(made, 0.5)[0]).toMatch(/^rgb\(25[45] 25[45] 255\)$/);
  });
});

describe("running text", () => {
  it("keeps its lines, and shows what would do harm", () => {
    expect(showText("a\r\nb\tc\u202ed\n")).toBe("a\nb\tc‹RLO›d\n");
  });
});
