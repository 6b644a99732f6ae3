// What Python writes into the page. A change here is a change there, and of `VERSION`.

export const VERSION = 3;

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
  readonly high: number;
}

export interface ExplanationRow {
  readonly token: string;
  readonly key: readonly number[];
  readonly score: number;
  readonly scaled: number;
  readonly weight: number;
  readonly value: readonly number[] | null;
}

export interface Explanation {
  readonly token: string;
  readonly scaled_by: number;
  readonly query: readonly number[];
  readonly rows: readonly ExplanationRow[];
  readonly output: readonly number[] | null;
  readonly notes: readonly string[];
}

/** What is shown first: a head, and the token that looks. */
export interface FirstLook {
  readonly layer: number;
  readonly head: number;
  readonly token: number;
}

export interface PageData {
  readonly version: number;
  readonly title: string;
  readonly about: string;
  readonly texts: readonly Text[];
  readonly layers: readonly Layer[];
  readonly averages: readonly Average[];
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
