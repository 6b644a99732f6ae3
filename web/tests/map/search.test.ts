import { describe, expect, it } from "vitest";
import { TextIndex } from "../../src/map/data/search";
import { Searching } from "../../src/map/look/searching";

const PIECES = ["Call", " me", " Ish", "ma", "el", ".", "", " ISH", "mael", "\n"];

describe("searching", () => {
  it("finds words across tokens, whatever their case", () => {
    expect(new TextIndex(PIECES).find("ishmael", 10)).toEqual([
      [2, 4],
      [7, 8],
    ]);
  });

  it("finds words across lines", () => {
    const pieces = ["what", " northern", "\n", "lights", "!"];
    expect(new TextIndex(pieces).find("northern lights", 10)).toEqual([[1, 3]]);
  });

  it("finds no more than it is asked for, and nothing for nothing", () => {
    const index = new TextIndex(PIECES);
    expect(index.find("a", 2)).toHaveLength(2);
    expect(index.find("", 10)).toEqual([]);
    expect(index.find("whale", 10)).toEqual([]);
  });

  it("is not led astray by letters that grow when they are small", () => {
    // İ in small letters has two characters.
    expect(new TextIndex(["İ", "İ", "x"]).find("x", 1)).toEqual([[2, 2]]);
  });

  it("steps from place to place and round", () => {
    const searching = new Searching();
    searching.setText(PIECES);
    searching.find("ma", 5);
    expect(searching.here).toEqual([8, 8]);
    searching.step(1);
    expect(searching.here).toEqual([3, 3]);
    searching.step(-1);
    expect(searching.here).toEqual([8, 8]);
    searching.find("", 0);
    expect(searching.here).toBeNull();
  });
});
