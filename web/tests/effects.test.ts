import { describe, expect, it } from "vitest";
import { decodeSection } from "../src/page/decode-edges";
import { Edges } from "../src/page/edges";
import { mapsOf } from "../src/page/maps";

/** Edges of a dense matrix, rows of queries, largest by size first. */
function edgesOf(rows: readonly (readonly number[])[], largest: number | null): Edges {
  const starts = [0];
  const targets: number[] = [];
  const weights: number[] = [];
  for (const row of rows) {
    const keys = row.map((_, key) => key).filter((key) => row[key] !== 0);
    keys.sort((a, b) => Math.abs(row[b] ?? 0) - Math.abs(row[a] ?? 0));
    targets.push(...keys);
    weights.push(...keys.map((key) => row[key] ?? 0));
    starts.push(targets.length);
  }
  return new Edges(
    rows.length,
    rows[0]?.length ?? 0,
    Uint32Array.from(starts),
    Uint32Array.from(targets),
    Float32Array.from(weights),
    largest,
  );
}

describe("effects", () => {
  it("are steps of the largest, up and down", () => {
    // One query; its keys are 0 and 1; +2 and −1 of 2.
    const steps = [65535, 32768 - 16384];
    const bytes = Uint8Array.from([
      2,
      ...[0, 1].map((key) => (65535 - key) & 255),
      ...[0, 1].map((key) => (65535 - key) >> 8),
      ...steps.map((step) => step & 255),
      ...steps.map((step) => step >> 8),
    ]);
    const edges = decodeSection(bytes, 0, {
      queries: 1,
      keys: 2,
      sections: 1,
      weightBits: 16,
      largest: 2,
      what: "it",
    });
    const { tokens, weights, signed, most } = edges.lookedAtBy(0);
    expect([...tokens]).toEqual([0, 1]);
    expect(weights[0]).toBe(2);
    expect(weights[1]).toBeCloseTo(-1, 4);
    expect([signed, most]).toEqual([true, 2]);
  });

  it("are in the order of their size from the other side too", () => {
    const edges = edgesOf([[0.1], [-0.9], [0.5]], 1);
    expect([...edges.lookingAt(0).tokens]).toEqual([1, 2, 0]);
    expect(edges.largestWithin([0, 3], [0, 1])).toBeCloseTo(-0.9);
  });
});

describe("maps of edges", () => {
  it("of weights are as bright as the largest of each head allows", () => {
    const [maps] = mapsOf([[edgesOf([[0.25, 1]], null), edgesOf([[0.5, 0]], null)]]);
    expect(maps?.map((map) => [...map.cells])).toEqual([
      [128, 255],
      [255, 0],
    ]);
  });

  it("of effects have one scale for all heads, and one for their sums", () => {
    const heads = [edgesOf([[-1, 0.25]], 1), edgesOf([[0, 0]], 1)];
    const [maps] = mapsOf([[...heads, edgesOf([[0.5, 0]], 1)]]);
    expect(maps?.map((map) => [...map.cells])).toEqual([
      [1, 192],
      [128, 128],
      [255, 128],
    ]);
  });
});
