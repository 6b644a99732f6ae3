import { describe, expect, it } from "vitest";
import { fills, marginsAmong, roomFor } from "../../src/map/engine/room";

const MARGINS = { top: 74, left: 96, line: 26 };

describe("the room of a map", () => {
  // As measured in a browser, of elements of these sizes.
  it.each([
    [707, 734, 585, 632],
    [704, 535, 582, 428],
    [582, 500, 460, 392],
    [707, 739, 585, 632],
  ])("is where HiGlass will lay it out: %i × %i", (width, height, wide, high) => {
    const room = roomFor(width, height, MARGINS);
    expect(room).toEqual({ position: [122, 100], dimensions: [wide, high] });
    expect(fills(room, width, height)).toBe(true);
  });

  it("has narrow margins on a phone", () => {
    const room = roomFor(370, 383, { top: 58, left: 62, line: 16 });
    expect(room).toEqual({ position: [78, 74], dimensions: [292, 310] });
  });

  it("is square in a square element beside others", () => {
    const { dimensions } = roomFor(528, 528, marginsAmong(1, false, 1440, 900));
    expect(dimensions[0]).toBe(dimensions[1]);
  });

  it("gives maps beside each other more room on a phone", () => {
    const [wide, small] = [marginsAmong(1, false, 1440, 900), marginsAmong(1, false, 390, 844)];
    expect(small.left).toBeLessThan(wide.left);
    expect(small.top).toBeLessThan(wide.top);
  });

  it("has no axis where another map has it", () => {
    const places = [0, 1, 2, 3].map((index) => marginsAmong(index, true, 1440, 900));
    expect(places.map(({ top, left }) => [top > 0, left > 0])).toEqual([
      [true, true],
      [true, false],
      [false, true],
      [false, false],
    ]);
  });

  it("does not fill an element of another size", () => {
    expect(fills(roomFor(707, 734, MARGINS), 707, 760)).toBe(false);
    expect(fills(roomFor(707, 734, MARGINS), 730, 734)).toBe(false);
  });
});
