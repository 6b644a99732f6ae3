/** What Python writes into a report; `src/regard/atlas/report/facts.py` is the other side. */
export const VERSION = 1;

export interface Atlas {
  readonly version: number;
  readonly title: string;
  /** How large the survey was, in one line. */
  readonly about: string;
  readonly measures: readonly Measure[];
  readonly heads: readonly Head[];
  /** The offsets, key − query, of the shares of heads. */
  readonly offsets: readonly number[];
  /** The nearest and the farthest distance of each bin of the shares of heads. */
  readonly distances: readonly (readonly [number, number])[];
  readonly labels: readonly LabelGroup[];
  readonly relations: readonly Task[];
  readonly coreference: readonly Task[];
  readonly examples: readonly Example[];
  readonly rules: readonly Rule[];
  readonly provenance: readonly (readonly [string, string])[];
  readonly skipped: readonly (readonly [string, number])[];
}

export interface Measure {
  readonly id: string;
  readonly name: string;
  /** What it is counted in; "" for a share of attention. */
  readonly unit: string;
  readonly about: string;
  readonly scale: "linear" | "log";
}

export interface Head {
  readonly layer: number;
  readonly head: number;
  readonly module: string;
  /** How many rows of attention were summed up. */
  readonly rows: number | null;
  readonly labels: readonly Label[];
  /** One for each measure; null where it was not measured. */
  readonly values: readonly (number | null)[];
  readonly offsets: readonly (number | null)[] | null;
  readonly distances: readonly (number | null)[] | null;
}

export interface Label {
  readonly name: string;
  /** The group that it belongs to. */
  readonly kind: string;
  readonly evidence: string;
}

export interface LabelGroup {
  readonly label: string;
  /** One character that stands for it. */
  readonly mark: string;
  /** Which heads have it, the strongest first. */
  readonly heads: readonly { readonly head: number; readonly strength: number | null }[];
}

/** Something that heads can be good at: a grammatical relation, or coreference. */
export interface Task {
  readonly name: string;
  readonly meaning: string;
  readonly total: number;
  readonly baselines: readonly { readonly name: string; readonly score: number | null }[];
  /** By how much the lower end of the best head's interval is above the best baseline. */
  readonly gain: number;
  /** The best head first, then others, the better first. */
  readonly heads: readonly Score[];
}

export interface Score {
  readonly head: number;
  readonly best: boolean;
  readonly score: number;
  readonly low: number | null;
  readonly high: number | null;
}

export interface Example {
  readonly head: number;
  readonly weight: number;
  readonly document: string;
  /** The text in pieces, each with what it is: "query", "key", "both" or "". */
  readonly pieces: readonly (readonly [string, string])[];
}

export interface Rule {
  readonly label: string;
  readonly rule: string;
  readonly meaning: string;
}
