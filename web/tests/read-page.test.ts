import { describe, expect, it } from "vitest";
import { readPage } from "../src/page/read-page";
import { somePage } from "./encode";

describe("the description of a page", () => {
  it("is read", () => {
    expect(readPage(JSON.stringify(somePage()))).toEqual(somePage());
  });

  it.each([
    ["", "cannot be read"],
    ['{"version": 1, "texts"', "cannot be read"],
    ["null", "cannot be read"],
    [JSON.stringify(somePage({ version: 1 })), "version 1 of its format"],
    [JSON.stringify(somePage({ texts: [] })), "no text"],
    [
      JSON.stringify(
        somePage({ averages: [{ title: "all", group: "", queries: 1, keys: 0, layers: [] }] }),
      ),
      "no text",
    ],
  ])("that is damaged is told: %.30s", (json, words) => {
    expect(() => readPage(json)).toThrow(words);
  });
});
