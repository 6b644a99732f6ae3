import { describe, expect, it } from "vitest";
import { cellSize, GAP, rowsOf, stepFrom } from "../../src/atlas/look/grid-shape";
import { someAtlas } from "./made";

const ROWS = rowsOf(someAtlas());

describe("the grid", () => {
  it("has a row for each layer, and gaps where heads are missing", () => {
    expect(ROWS).toEqual([
      { layer: 0, heads: [0, 1, 2] },
      { layer: 1, heads: [3, undefined, 4] },
    ]);
  });

  it.each([
    [0, "ArrowRight", 1],
    [0, "ArrowLeft", null],
    [0, "ArrowDown", 3],
    [1, "ArrowDown", null],
    [3, "ArrowRight", 4],
    [4, "ArrowLeft", 3],
    [4, "ArrowUp", 2],
    [3, "End", 4],
    [2, "Home", 0],
    [0, "x", null],
  ])("from %i, %s leads to %s", (from, key, to) => {
    expect(stepFrom(ROWS, from, key)).toBe(to);
  });

  it.each([
    [6, 12],
    [30, 9],
    [48, 25],
  ])("of %i × %i fits, as long as its cells can be hit", (rows, columns) => {
    const room = { width: 600, height: 720, coarse: false };
    const cell = cellSize(rows, columns, room);
    expect(cell).toBeGreaterThanOrEqual(13);
    expect(columns * (cell + GAP)).toBeLessThanOrEqual(room.width);
    expect(rows * (cell + GAP)).toBeLessThanOrEqual(room.height);
    expect(cellSize(rows, columns, { ...room, width: 100, coarse: true })).toBe(24);
  });
});
