import { describe, expect, it } from "vitest";
import { paint } from "../../src/map/colours/paint";
import { PALETTES, SHADES, stopsOf, tableOf } from "../../src/map/colours/palettes";
import { legendTicks, rangeOf, shareOf } from "../../src/map/colours/range";
import { tickName } from "../../src/map/parts/legend";

describe("ranges", () => {
  it("of the largest weight of a cell are the same at every level", () => {
    expect(rangeOf("max", "log", 1)).toEqual(rangeOf("max", "log", 32));
    expect(shareOf(rangeOf("max", "log", 32), 1)).toBe(1);
  });

  it("of the mean end where a mean can end", () => {
    expect(rangeOf("mean", "log", 16).high).toBe(1 / 16);
    expect(rangeOf("mean", "linear", 1)).toEqual({
      scaling: "linear",
      signed: false,
      low: 0,
      high: 1,
    });
  });

  it("put weights where they belong", () => {
    const range = rangeOf("max", "log", 1);
    expect(shareOf(range, 0)).toBe(0);
    expect(shareOf(range, 1e-5)).toBe(0);
    expect(shareOf(range, 1e-3)).toBeCloseTo(0.4);
    expect(shareOf(range, 2)).toBe(1);
  });

  it.each(["log", "linear"] as const)("of effects have 0 in the middle, %s", (scaling) => {
    const range = rangeOf("effect", scaling, 16, 4);
    expect([-9, -4, 0, 4].map((value) => shareOf(range, value))).toEqual([0, 0, 0.5, 1]);
    expect(shareOf(range, -0.04) + shareOf(range, 0.04)).toBeCloseTo(1);
    expect(legendTicks(range).map(tickName)).toEqual(["−4", "0", "4"]);
    const table = tableOf("diverging", true);
    const pixels = new Uint32Array(6);
    paint(Float32Array.of(Number.NaN, -9, -4, 0, 4, 0.04), pixels, table, range);
    const [clear, below, lowest, middle, highest, some] = pixels;
    expect([clear, below, highest]).toEqual([0, lowest, table[SHADES - 1]]);
    expect(lowest).toBe(table[0]);
    expect(middle).toBe(table[SHADES / 2]);
    expect(some).toBe(table[Math.round(shareOf(range, Math.fround(0.04)) * (SHADES - 1))]);
  });

  it("have names", () => {
    const names = legendTicks(rangeOf("max", "log", 1)).map(tickName);
    expect(names).toEqual(["10⁻⁵", "10⁻⁴", "10⁻³", "0.01", "0.1", "1"]);
    const means = legendTicks(rangeOf("mean", "log", 16)).map(tickName);
    expect(means).toEqual(["10⁻⁶", "10⁻⁵", "10⁻⁴", "10⁻³", "0.01"]);
    expect(tickName(0.0625e-3)).toBe("6.3·10⁻⁵");
    expect(tickName(0)).toBe("0");
  });
});

describe("colours", () => {
  it.each(PALETTES)("of %s run from the paper to their end, ever farther from it", (palette) => {
    for (const dark of [false, true]) {
      const light = stopsOf(palette, dark).map(brightness);
      const ordered = [...light].sort((one, other) => (dark ? one - other : other - one));
      expect(light).toEqual(ordered);
    }
  });

  it("leave clear what nobody may look at, and nothing else", () => {
    const table = tableOf("ember", false);
    const pixels = new Uint32Array(4);
    for (const scaling of ["log", "linear"] as const) {
      const values = Float32Array.of(Number.NaN, 0, 1, 7);
      paint(values, pixels, table, rangeOf("max", scaling, 1));
      expect([...pixels]).toEqual([0, table[0], table[SHADES - 1], table[SHADES - 1]]);
    }
  });
});

/** Relative luminance, as WCAG has it. */
function brightness(colour: string): number {
  const [red, green, blue] = [1, 3, 5].map((at) => {
    const share = Number.parseInt(colour.slice(at, at + 2), 16) / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  }) as [number, number, number];
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}
