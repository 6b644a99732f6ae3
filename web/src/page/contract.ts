// What Python writes into the page. A change here is a change there, and of `VERSION`.

import type { Stops } from "../colours/diverging";

export const VERSION = 4;

export interface Text {
  readonly name: string;
  readonly pieces: readonly string[];
  /** Where each token stands in the whole text; null if they are counted from 0. */
  readonly positions: readonly number[] | null;
}

export interface Layer {
  readonly module: string;
  /** At the head of its row. */
  readonly name: string;
  /** In the middle of a sentence: "layer 3", "decoder layer 0", "attention". */
  readonly title: string;
  readonly group: string;
  readonly looks: "self" | "cross";
  /** Index of the text that looks. */
  readonly queries: number;
  /** Index of the text that is looked at. */
  readonly keys: number;
  /** The number of each head in the model. */
  readonly heads: readonly number[];
  readonly measures: Readonly<Record<string, readonly (number | null)[]>>;
}

/** Queries and keys of a layer, as the kernel got them: float32, [heads, queries, dim], [key_heads, keys, dim]. */
export interface VectorFacts {
  readonly dim: number;
  readonly key_heads: number;
  /** The factor on q · k. */
  readonly scale: number;
  /** Whether the model adds a bias to the scores. */
  readonly bias: boolean;
}

/** The mean over all heads of some layers. */
export interface Average {
  /** In the middle of a sentence: "all 6 layers". */
  readonly title: string;
  readonly group: string;
  readonly queries: number;
  readonly keys: number;
  readonly layers: readonly number[];
}

export interface Measure {
  readonly id: string;
  readonly name: string;
  readonly unit: string;
  readonly about: string;
  /** The largest value by size. */
  readonly high: number;
}

/** Numbers before the softmax are null if only the weights are known. */
export interface ExplanationRow {
  readonly token: string;
  readonly key: readonly number[] | null;
  readonly score: number | null;
  readonly scaled: number | null;
  readonly weight: number;
  readonly value: readonly number[] | null;
}

export interface Explanation {
  readonly token: string;
  readonly scaled_by: number | null;
  readonly query: readonly number[] | null;
  readonly rows: readonly ExplanationRow[];
  readonly output: readonly number[] | null;
  readonly notes: readonly string[];
}

/** What is shown first: a head, and the token that looks. */
export interface FirstLook {
  readonly layer: number;
  readonly head: number;
  readonly token: number;
  /** In the middle of a sentence. */
  readonly why: string;
}

export interface PageData {
  readonly version: number;
  readonly title: string;
  readonly about: string;
  /** The target of effects; null on a page of weights. */
  readonly effect_on: string | null;
  /** The largest effect by size; null for weights. */
  readonly largest: number | null;
  /** Colours of signed numbers. */
  readonly diverging: Stops;
  readonly texts: readonly Text[];
  /** The first token of the second of two sentences; null if there is one. */
  readonly sentence_b_start: number | null;
  readonly layers: readonly Layer[];
  readonly averages: readonly Average[];
  /** Of each layer, how to read its queries and keys; empty if they are not there. */
  readonly vectors: readonly VectorFacts[];
  readonly measures: readonly Measure[];
  readonly map_size: number;
  readonly weight_bits: 8 | 16;
  /** At most so many of the strongest keys of a query are in the page. */
  readonly kept: number;
  /** And only those with at least this weight. */
  readonly floor: number;
  readonly explanation: Explanation | null;
  /** One for each text that looks; the page begins with the first. */
  readonly first: readonly FirstLook[];
}
