import { describe, expect, it } from "vitest";
import {
  allHeads,
  factsOf,
  firstHead,
  headFromKey,
  headKey,
  isThere,
} from "../../src/map/data/heads";
import { nextHead, nextLayer } from "../../src/map/look/steps";
import { cut } from "../../src/map/parts/chunks";
import { someInfo } from "./some-info";

const INFO = someInfo();

describe("heads", () => {
  it("are named by layer and head", () => {
    expect(factsOf(INFO, { call: 1, head: 0 })?.name).toBe("1.0");
    expect(factsOf(INFO, { call: 2, head: "mean" })?.name).toBe("2.mean");
    expect(factsOf(INFO, { call: 1, head: 0 })?.title).toBe("Layer 1, head 0");
    expect(factsOf(INFO, { call: 2, head: "mean" })?.title).toBe("Layer 2, mean of heads");
    const calls = [
      { ...(INFO.calls[0] as (typeof INFO.calls)[0]), group: "encoder" },
      { ...(INFO.calls[0] as (typeof INFO.calls)[0]), layer: "", module: "Attention" },
    ];
    const titles = [0, 1].map((call) => factsOf(someInfo({ calls }), { call, head: 1 })?.title);
    expect(titles).toEqual(["Encoder layer 0, head 1", "Attention, head 1"]);
    expect(factsOf(INFO, { call: 3, head: 0 })).toBeNull();
    expect(factsOf(INFO, { call: 0, head: 2 })).toBeNull();
  });

  it("may look wherever one of them may, in their mean", () => {
    const all = { call: "all", head: "mean" } as const;
    expect(factsOf(INFO, all)).toMatchObject({ causal: true, words: "the mean of all heads" });
    const [first, ...others] = INFO.calls;
    const calls = [
      first as (typeof INFO.calls)[0],
      ...others.map((c) => ({ ...c, causal: false })),
    ];
    expect(factsOf(someInfo({ calls }), all)?.causal).toBe(false);
  });

  it("have keys that name them", () => {
    for (const ref of allHeads(INFO)) expect(headFromKey(headKey(ref))).toEqual(ref);
    expect(headFromKey("c1-h0; drop")).toBeNull();
  });

  it("are all there, with their means, in order", () => {
    expect(allHeads(INFO).map(headKey).join(" ")).toBe(
      "c0-h0 c0-h1 c0-hmean c1-h0 c1-h1 c1-hmean c2-h0 c2-h1 c2-hmean all",
    );
    expect(isThere(someInfo({ all: null }), { call: "all", head: "mean" })).toBe(false);
  });

  it("follow one another", () => {
    expect(nextHead(INFO, { call: 0, head: 1 }, 1)).toEqual({ call: 0, head: "mean" });
    expect(nextHead(INFO, { call: 0, head: 0 }, -1)).toEqual({ call: "all", head: "mean" });
    expect(nextLayer(INFO, { call: 1, head: 1 }, 1)).toEqual({ call: 2, head: 1 });
    expect(nextLayer(INFO, { call: 2, head: 1 }, 1)).toEqual({ call: 2, head: 1 });
  });

  it("begin with the one that the recording names, if it is there", () => {
    expect(firstHead(someInfo({ first: { call: 1, head: 1 } }))).toEqual({ call: 1, head: 1 });
    expect(firstHead(someInfo({ first: { call: 1, head: 99 } }))).toEqual({ call: 0, head: 0 });
    expect(firstHead(INFO)).toEqual({ call: 0, head: 0 });
  });
});

describe("a long text", () => {
  it("is cut at the ends of lines, and has every token once", () => {
    const pieces = Array.from({ length: 5000 }, (_, index) => (index % 11 === 10 ? ".\n" : "word"));
    const chunks = cut(pieces);
    expect(chunks.map(({ first }) => first)).toEqual([0, ...chunks.slice(0, -1).map((c) => c.end)]);
    expect(chunks.at(-1)?.end).toBe(5000);
    expect(chunks.slice(0, -1).every(({ end }) => pieces[end - 1] === ".\n")).toBe(true);
  });

  it("without lines is cut all the same", () => {
    const chunks = cut(Array.from({ length: 100_000 }, () => "x"));
    expect(chunks.every(({ first, end }) => end - first <= 400)).toBe(true);
    expect(cut([])).toEqual([]);
  });
});
