import { describe, expect, it } from "vitest";
import { blocksOf, nameOf, positionOf } from "../src/look/blocks";
import { layGrid } from "../src/parts/grid-layout";
import { somePage } from "./encode";

const [first, second] = somePage().layers;
if (!first || !second) throw new Error("the page has no layers");

describe("heads", () => {
  it("have the numbers of the model", () => {
    const blocks = blocksOf(somePage({ layers: [{ ...first, heads: [2, 5] }] }));
    const names = [0, 1, 2].map((section) => blocks[0] && nameOf(blocks[0], section));
    expect(names).toEqual(["layer 0, head 2", "layer 0, head 5", "layer 0, mean of 2 heads"]);
    expect(blocks[1] && nameOf(blocks[1], 0)).toBe("all 2 layers, mean of heads");
  });

  it("number the columns of the grid where rows agree", () => {
    const layers = [
      { ...first, heads: [2, 5] },
      { ...second, heads: [2, 7, 8] },
    ];
    expect(layGrid(blocksOf(somePage({ layers })), 300, 12).names).toEqual(["2", "", "8", "mean"]);
  });
});

describe("tokens", () => {
  it("stand where they stand in the whole text", () => {
    const part = { name: "text 4–5", pieces: ["a", "b"], positions: [4, 5] };
    expect([0, 1].map((token) => positionOf(part, token))).toEqual([4, 5]);
    expect(positionOf({ ...part, positions: null }, 1)).toBe(1);
  });
});
