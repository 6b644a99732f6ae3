import { describe, expect, it } from "vitest";
import { allEqual, rankOf, type Spread, shareOf, spreadsOf } from "../../src/atlas/data/spread";
import { someAtlas } from "./made";

const [first, distance, ...others] = spreadsOf(someAtlas()) as [Spread, Spread];

describe("the values of a measure", () => {
  it("leave out what was not measured", () => {
    expect(others).toEqual([]);
    expect(first.values).toEqual([0.2, 0.8, null, 0.2, 0.4]);
    expect(first.sorted).toEqual([0.2, 0.2, 0.4, 0.8]);
  });

  it("begin at zero, or at the least above it", () => {
    expect([first.low, first.high]).toEqual([0, 0.8]);
    expect([distance.low, distance.high]).toEqual([1, 1000]);
  });

  it("stand between low and high", () => {
    expect([0, 0.2, 0.8, 2].map((value) => shareOf(first, value))).toEqual([0, 0.25, 1, 1]);
    const shares = [0, 1, 10, 100, 1000].map((value) => shareOf(distance, value));
    for (const [at, share] of [0, 0, 1 / 3, 2 / 3, 1].entries()) {
      expect(shares[at]).toBeCloseTo(share, 12);
    }
  });

  it("that are all the same have a colour", () => {
    const same = { ...first, low: 0, high: 0 };
    expect(shareOf(same, 0)).toBe(0);
    expect(shareOf({ ...distance, low: 3, high: 3 }, 3)).toBe(1);
  });

  it("have ranks, equal ones the same", () => {
    expect([0.8, 0.4, 0.2].map((value) => rankOf(first, value))).toEqual([1, 2, 3]);
  });

  it("are all equal only if several heads have the same", () => {
    expect(allEqual(first)).toBe(false);
    expect(allEqual({ ...first, sorted: [0, 0, 0] })).toBe(true);
    expect(allEqual({ ...first, sorted: [0] })).toBe(false);
  });
});
