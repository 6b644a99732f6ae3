import { describe, expect, it } from "vitest";
import { byLooks, byMeasure } from "../../src/map/data/ranking";
import { someInfo } from "./some-info";

const measure = { name: "effect", title: "effect", unit: "", about: "" };
const [call] = someInfo().calls;

describe("heads", () => {
  it("are sorted by the size of a measure, those without it left out", () => {
    const values = [
      [0.1, -0.5],
      [null, 0.3],
    ];
    const calls = values.map((effect) => ({
      ...(call as NonNullable<typeof call>),
      measures: { effect },
    }));
    const sorted = byMeasure(someInfo({ calls }), measure);
    expect(sorted.map(({ ref, value }) => [ref.call, ref.head, value])).toEqual([
      [0, 1, -0.5],
      [1, 1, 0.3],
      [0, 0, 0.1],
    ]);
    const published = { heads: [["0", "0"]] as const, maxZoom: 2, pools: ["mean"] as const };
    expect(byMeasure(someInfo({ calls, published }), measure).map(({ name }) => name)).toEqual([
      "0.0",
    ]);
  });

  it.each(Object.getOwnPropertyNames(Object.prototype))(
    "without a measure %j are left out",
    (name) => {
      const calls = someInfo().calls.map((one) => ({ ...one, measures: {} }));
      expect(byMeasure(someInfo({ calls }), { ...measure, name })).toEqual([]);
    },
  );

  it("are sorted by looks, those in which none counts left out", () => {
    const calls = someInfo().calls.map((one) => ({ ...one, queryText: 1 }));
    const looks = [
      { call: 0, tokens: [null, 7], weights: [0, 0.2] },
      { call: 2, tokens: [5, 6], weights: [0.9, 0.1] },
    ];
    const sorted = (direction: "from" | "at") =>
      byLooks(someInfo({ calls }), looks, direction).map(({ name, value, text, token }) => {
        return [name, value, text, token];
      });
    expect(sorted("from")).toEqual([
      ["2.0", 0.9, 0, 5],
      ["0.1", 0.2, 0, 7],
      ["2.1", 0.1, 0, 6],
    ]);
    expect(sorted("at").map(([, , text]) => text)).toEqual([1, 1, 1]);
  });
});
