// What the server, or a published folder, says of its recordings. web/README.md has the layout.

/** A head, the mean over the heads of a call, or the mean over everything. */
export interface HeadRef {
  readonly call: number | "all";
  readonly head: number | "mean";
}

/** What a cell shows: of weights the mean or the largest, or the largest effect by size. */
export type Pool = "mean" | "max" | "effect";

export interface RecordingEntry {
  readonly name: string;
  readonly digest: string;
  readonly title: string;
  readonly model: string;
  readonly tokens: number;
}

export interface Recordings {
  readonly version: number;
  readonly live: boolean;
  readonly recordings: readonly RecordingEntry[];
}

export interface Measure {
  readonly name: string;
  readonly title: string;
  readonly unit: string;
  readonly about: string;
}

export interface Call {
  readonly call: number;
  readonly layer: string;
  /** The stack that it belongs to, "" where there is only one. */
  readonly group: string;
  readonly module: string;
  readonly queries: number;
  readonly keys: number;
  readonly queryText: number;
  readonly keyText: number;
  readonly heads: number;
  readonly maxZoom: number;
  readonly causal: boolean;
  readonly measures: Readonly<Record<string, readonly (number | null)[]>>;
}

export interface Section {
  readonly text: number;
  readonly token: number;
  readonly title: string;
}

export interface Published {
  readonly heads: readonly (readonly [string, string])[];
  readonly maxZoom: number;
  readonly pools: readonly Pool[];
}

export interface Info {
  /** The head to show first, if the recording names one. */
  readonly first: HeadRef | null;
  readonly version: number;
  readonly live: boolean;
  readonly name: string;
  readonly title: string;
  readonly digest: string;
  readonly about: {
    readonly model: string;
    readonly date: string;
    readonly dtype: string;
    readonly error: number;
  };
  readonly tileSize: number;
  readonly rowBlock: number;
  readonly texts: readonly { readonly name: string; readonly tokens: number }[];
  readonly sections: readonly Section[];
  readonly measures: readonly Measure[];
  readonly calls: readonly Call[];
  /** What effects are effects on, and the largest one by size; null if calls have none. */
  readonly effects: { readonly target: string; readonly largest: number } | null;
  readonly all: { readonly maxZoom: number; readonly fullZoom: number } | null;
  readonly published: Published | null;
}

/** The strongest keys of a query, by descending weight. */
export interface Row {
  readonly keys: readonly number[];
  readonly weights: readonly number[];
  /** The weight on keys that are not listed. */
  readonly rest: number;
}

export interface RowBlock {
  readonly first: number;
  readonly rows: readonly Row[];
}

/** Looks from a token, or at it. */
export type Direction = "from" | "at";

/** The strongest look of each head of a call: the token at its other end, null if none counts. */
export interface CallLooks {
  readonly call: number;
  readonly tokens: readonly (number | null)[];
  readonly weights: readonly number[];
}

export const TILE = 256;
