import { describe, expect, it } from "vitest";
import { decodeSection, findSections, type Shape } from "../src/page/decode-edges";
import type { Edges } from "../src/page/edges";
import { encodeSection, type Section, someSection } from "./encode";

const ROUNDING = { 8: 0.004, 16: 0.00001 };

function decodeAll(bytes: Uint8Array, shape: Shape): Edges[] {
  return findSections(bytes, shape).map((start) => decodeSection(bytes, start, shape));
}

function expectSame(edges: Edges, section: Section, tolerance: number): void {
  for (const [query, entries] of section.entries()) {
    const { tokens, weights } = edges.lookedAtBy(query);
    expect([...tokens]).toEqual(entries.map(([key]) => key));
    const off = entries.map(([, weight], rank) => Math.abs((weights[rank] ?? Infinity) - weight));
    expect(Math.max(0, ...off)).toBeLessThan(tolerance);
  }
}

describe("the edges of a layer", () => {
  for (const weightBits of [8, 16] as const) {
    for (const [queries, keys] of [
      [1, 1],
      [7, 7],
      [5, 900],
      [900, 5],
      [300, 300],
    ] as const) {
      it(`come back: ${queries} × ${keys}, ${weightBits} bits`, () => {
        const sections = [0, 1, 2].map((seed) => someSection(queries, keys, 16, seed));
        const bytes = Uint8Array.from(sections.flatMap((one) => encodeSection(one, weightBits)));
        const decoded = decodeAll(bytes, {
          queries,
          keys,
          sections: 3,
          weightBits,
          largest: null,
          what: "it",
        });
        for (const [index, edges] of decoded.entries()) {
          expectSame(edges, sections[index] as Section, ROUNDING[weightBits]);
        }
      });
    }
  }

  it("reach far back and far ahead", () => {
    const keys = 32_000;
    const section: Section = Array.from({ length: keys }, (_, query) => {
      if (query === 0) return [[keys - 1, 0.5]];
      return query === keys - 1 ? [[4, 0.5]] : [];
    });
    const bytes = Uint8Array.from(encodeSection(section, 16));
    const shape: Shape = {
      queries: keys,
      keys,
      sections: 1,
      weightBits: 16,
      largest: null,
      what: "it",
    };
    const [edges] = decodeAll(bytes, shape);
    expect([...(edges?.lookedAtBy(0).tokens ?? [])]).toEqual([keys - 1]);
    expect([...(edges?.lookedAtBy(keys - 1).tokens ?? [])]).toEqual([4]);
  });

  it("that are cut short or too long are told, not shown", () => {
    const shape: Shape = {
      queries: 9,
      keys: 9,
      sections: 2,
      weightBits: 8,
      largest: null,
      what: "layer 3",
    };
    const section = encodeSection(someSection(9, 9, 4, 5), 8);
    const bytes = Uint8Array.from([...section, ...section]);
    expect(() => findSections(bytes.subarray(0, -1), shape)).toThrow(
      "weights of layer 3 are cut short",
    );
    expect(() => findSections(bytes.subarray(0, 3), shape)).toThrow("cut short");
    expect(() => findSections(new Uint8Array(), shape)).toThrow("cut short");
    expect(() => findSections(Uint8Array.from([...bytes, 0]), shape)).toThrow("damaged");
  });

  it("that lead out of the text are told, not shown", () => {
    const shape: Shape = {
      queries: 1,
      keys: 6,
      sections: 1,
      weightBits: 8,
      largest: null,
      what: "layer 3",
    };
    const bytes = Uint8Array.from(encodeSection([[[7, 0.5]]], 8));
    expect(() => decodeAll(bytes, shape)).toThrow("weights of layer 3 are damaged");
  });
});

describe("who looks at a token", () => {
  it("is the same weights from the other side", () => {
    const section = someSection(40, 30, 8, 3);
    const shape: Shape = {
      queries: 40,
      keys: 30,
      sections: 1,
      weightBits: 16,
      largest: null,
      what: "it",
    };
    const [edges] = decodeAll(Uint8Array.from(encodeSection(section, 16)), shape);
    if (!edges) throw new Error("nothing was decoded");
    const received = edges.received();
    for (let key = 0; key < 30; key++) {
      const { tokens, weights } = edges.lookingAt(key);
      const expected = section.flatMap((entries, query) => {
        return entries.some(([each]) => each === key) ? [query] : [];
      });
      expect([...tokens].sort((a, b) => a - b)).toEqual(expected);
      expect([...weights]).toEqual([...weights].sort((a, b) => b - a));
      const mean = weights.reduce((sum, weight) => sum + weight, 0) / 40;
      expect(received[key]).toBeCloseTo(mean, 5);
    }
  });
});
