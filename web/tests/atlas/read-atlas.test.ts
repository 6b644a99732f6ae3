import { describe, expect, it } from "vitest";
import { readAtlas } from "../../src/atlas/data/read-atlas";
import { someAtlas } from "./made";

describe("the JSON of a report", () => {
  it("is read", () => {
    expect(readAtlas(JSON.stringify(someAtlas()))).toEqual(someAtlas());
  });

  it.each([
    ["{", "damaged or cut short"],
    ["null", "damaged or cut short"],
    [JSON.stringify({ ...someAtlas(), version: 7 }), "version 7"],
    [JSON.stringify({ ...someAtlas(), heads: [] }), "no heads"],
  ])("that cannot be read says so", (json, words) => {
    expect(() => readAtlas(json)).toThrow(words);
  });
});
