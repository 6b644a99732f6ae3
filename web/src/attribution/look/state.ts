import type { HeadPlace } from "../data/scores";

/** What is being looked at. */
export interface State {
  /** The token of the answer that passages are scored for; null for the whole answer. */
  readonly word: number | null;
  /** The passage on the card. */
  readonly passage: number;
  /** The head on the card; null for the strongest of the passage. */
  readonly head: HeadPlace | null;
}
