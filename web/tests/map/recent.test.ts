import { expect, it } from "vitest";
import { Recent } from "../../src/look/recent";

it("keeps what was used last and lets go of the rest", () => {
  const recent = new Recent<string, number>(2);
  recent.set("a", 1);
  recent.set("b", 2);
  expect(recent.get("a")).toBe(1);
  recent.set("c", 3);
  expect([recent.get("a"), recent.get("b"), recent.get("c")]).toEqual([1, undefined, 3]);
});
