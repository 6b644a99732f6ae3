import type { Stops } from "../../colours/diverging";

/** What Python writes into the page; `src/regard/attribution/page.py` is the other side. */
export const VERSION = 2;

export type How = "effects" | "attention" | "leave-one-out";

export interface Attribution {
  readonly version: number;
  readonly title: string;
  readonly about: string;
  readonly colours: Stops;
  readonly how: How;
  readonly log_prob: number;
  /** Sentences on what to know of the scores. */
  readonly notes: readonly string[];
  /** The tokens of the prompt and of the answer, as pieces of text. */
  readonly prompt: readonly string[];
  readonly answer: readonly string[];
  /** The first token of each passage in the prompt, and the one after its last. Passages are counted
   * from 0, as in Python. */
  readonly passages: readonly (readonly [number, number])[];
  readonly scores: readonly number[];
  /** What the answer loses without a passage; null where it was not hidden. */
  readonly exact: readonly (number | null)[];
  /** How that disagrees with the score, in words; null where it does not. */
  readonly disagreements: readonly (string | null)[];
  /** The scores for each token of the answer, or null. */
  readonly by_token: readonly (readonly number[])[] | null;
  /** For each passage, layer and head, or null. */
  readonly by_head: readonly (readonly (readonly number[])[])[] | null;
  /** For each passage, how its strongest heads look at it, the strongest first, or null. */
  readonly looks: readonly (readonly Looks[])[] | null;
}

export interface Looks {
  readonly layer: number;
  readonly head: number;
  /** The effect of each token of the passage. */
  readonly keys: readonly number[];
  /** Tokens that look at the passage, and the effects of that; answers follow the prompt. */
  readonly queries: readonly (readonly [number, number])[];
}
