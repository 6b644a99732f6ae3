// An encoder by the description in README.md, apart from the one that Python has.

import type { PageData } from "../src/page/contract";

/** For each query its keys with their weights, the strongest first. */
export type Section = readonly (readonly (readonly [key: number, weight: number])[])[];

export function encodeSection(section: Section, weightBits: 8 | 16): number[] {
  const counts = section.map((keys) => keys.length);
  const low: number[] = [];
  const high: number[] = [];
  const first: number[] = [];
  const second: number[] = [];
  for (let rank = 0; rank < Math.max(0, ...counts); rank++) {
    for (const [query, keys] of section.entries()) {
      const entry = keys[rank];
      if (!entry) continue;
      const [key, weight] = entry;
      const back = query - key;
      const code = key < 4 ? 65535 - key : back >= 0 ? 2 * back : -2 * back - 1;
      low.push(code & 255);
      high.push(code >> 8);
      const written = Math.round(weightBits === 8 ? 255 * Math.sqrt(weight) : 65535 * weight);
      first.push(written & 255);
      second.push(written >> 8);
    }
  }
  return [...counts, ...low, ...high, ...first, ...(weightBits === 16 ? second : [])];
}

export async function pack(bytes: ArrayLike<number>): Promise<string> {
  const plain = new Blob([Uint8Array.from(bytes)]).stream();
  const packed = plain.pipeThrough(new CompressionStream("deflate"));
  return btoa(String.fromCharCode(...new Uint8Array(await new Response(packed).arrayBuffer())));
}

/** A section with weights that fall off, and with fewer keys for some queries. */
export function someSection(queries: number, keys: number, kept: number, seed: number): Section {
  let state = seed + 1;
  const random = (): number => {
    state = (state * 48271) % 2147483647;
    return state / 2147483647;
  };
  return Array.from({ length: queries }, () => {
    const chosen = new Set<number>();
    const many = Math.min(keys, Math.floor(random() * (kept + 1)));
    while (chosen.size < many) chosen.add(Math.floor(random() * keys));
    const weights = [...chosen].map(() => random() / 2).sort((a, b) => b - a);
    return [...chosen].map((key, rank) => [key, weights[rank] ?? 0] as const);
  });
}

export function somePage(part: Partial<PageData> = {}): PageData {
  const layer = {
    group: "",
    looks: "self",
    queries: 0,
    keys: 0,
    heads: [0, 1],
    measures: {},
  } as const;
  return {
    version: 4,
    title: "Title",
    about: "",
    effect_on: null,
    largest: null,
    sentence_b_start: null,
    diverging: { light: ["#000000", "#ffffff"], dark: ["#000000", "#ffffff"] },
    vectors: [],
    texts: [{ name: "text", pieces: ["a", " b", " c"], positions: null }],
    layers: [
      { ...layer, module: "layers.0", name: "0", title: "layer 0" },
      { ...layer, module: "layers.1", name: "1", title: "layer 1" },
    ],
    averages: [{ title: "all 2 layers", group: "", queries: 0, keys: 0, layers: [0, 1] }],
    measures: [],
    map_size: 64,
    weight_bits: 8,
    kept: 16,
    floor: 0,
    explanation: null,
    first: [],
    ...part,
  };
}
