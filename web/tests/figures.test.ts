import { describe, expect, it } from "vitest";
import { measured, percent, weightInFigures } from "../src/look/figures";

describe("what is not 0", () => {
  it("is not printed as 0", () => {
    for (const number of [1e-30, 1 / 65535, 0.0004, 0.000499]) {
      expect(weightInFigures(number)).toBe("<0.001");
      expect(measured(number)).toBe("<0.01");
      expect(percent(number)).toBe("< 1 %");
    }
    expect([weightInFigures(0), measured(0), percent(0)]).toEqual(["0.000", "0.00", "0 %"]);
    expect([weightInFigures(0.0005), measured(0.005), percent(0.005)]).toEqual([
      "0.001",
      "0.01",
      "1 %",
    ]);
    expect([0.994, 0.995, 1].map(percent)).toEqual(["99 %", "> 99 %", "100 %"]);
  });
});
