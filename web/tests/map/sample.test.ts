import { describe, expect, it } from "vitest";
import { cellsOf, halved, halvings, sample } from "../../src/map/colours/sample";

describe("pixels", () => {
  it("are in the cell in which their middle is", () => {
    // A pixel is 0.4 cells wide: middles at 0.2, 0.6, 1.0, 1.4, 1.8, 2.2.
    expect([...cellsOf(6, 0, 0.4)]).toEqual([0, 0, 1, 1, 1, 2]);
    expect([...cellsOf(3, -1, 1)]).toEqual([-1, 0, 1]);
  });

  it("have the colours of their cells, from whichever tile", () => {
    const tiles = new Map([
      ["0 0", Uint32Array.of(1, 2, 3, 4)],
      ["1 0", Uint32Array.of(5, 6, 7, 8)],
    ]);
    const asked: string[] = [];
    const columns = Int32Array.of(-1, 0, 1, 1, 2, 3, 4);
    const pixels = sample(2, columns, Int32Array.of(0, 1, 2), (x, y) => {
      asked.push(`${x} ${y}`);
      return tiles.get(`${x} ${y}`) ?? null;
    });
    expect([...pixels]).toEqual(
      [
        [0, 1, 2, 2, 5, 6, 0],
        [0, 3, 4, 4, 7, 8, 0],
        [0, 0, 0, 0, 0, 0, 0],
      ].flat(),
    );
    // Once a row, not once a pixel.
    expect(asked.length).toBe(3 * 4);
  });
});

describe("cells that are smaller than pixels", () => {
  it.each([
    [0.5, 0],
    [1, 0],
    [1.4, 0],
    [1.5, 1],
    [2.8, 1],
    [3, 2],
  ])("are put together: %f cells a pixel, %i times", (cells, times) => {
    expect(halvings(cells)).toBe(times);
  });

  it("have the mean of their colours, and what is clear has none", () => {
    const pixels = Uint32Array.of(0xff_00_20_40, 0xff_00_40_80, 0, 0, 0, 0, 0, 0);
    const tile = { size: 4, pixels: Uint32Array.of(...pixels, ...pixels) };
    const { size, pixels: means } = halved(tile);
    expect(size).toBe(2);
    // Half of its four cells are clear, so it is half clear.
    expect([...means]).toEqual([0x80_00_30_60, 0, 0x80_00_30_60, 0]);
  });
});
