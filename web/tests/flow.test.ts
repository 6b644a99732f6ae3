import { describe, expect, it } from "vitest";
import { continuesWord, isHardWrapped } from "../src/tokens/flow";

describe("a piece", () => {
  it.each([
    ["un", "believ", true],
    ["didn", "'", true],
    ["didn'", "t", true],
    ["day", " ", false],
    ["day", ".", false],
    [".", "The", false],
    ["", "The", false],
    ["東", "京", false],
    ["a".repeat(20), "b".repeat(5), false],
  ])("%j then %j", (word, piece, continues) => {
    expect(continuesWord(word, piece)).toBe(continues);
  });
});

describe("lines", () => {
  const line = "word ".repeat(13).trimEnd();
  it("of about the same width were broken at it", () => {
    expect(isHardWrapped([line, "\n", line, "\n", line, "\n", line, "\n\n", "end"])).toBe(true);
  });

  it("of verses, lists, code and long paragraphs were not", () => {
    expect(isHardWrapped(["roses are red\n", "violets are blue\n", "sugar\n", "is sweet\n"])).toBe(
      false,
    );
    expect(isHardWrapped(Array<string>(5).fill(`  ${line}\n`))).toBe(false);
    expect(isHardWrapped(Array<string>(5).fill(`${line}${line}\n`))).toBe(false);
    expect(isHardWrapped([line])).toBe(false);
  });
});
