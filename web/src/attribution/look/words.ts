import { effectInFigures } from "../../look/figures";
import type { Attribution, How } from "../data/contract";

/** A score, as it is written wherever it stands. */
export function figureOf(found: Attribution, value: number): string {
  return found.how === "attention" ? value.toFixed(3) : effectInFigures(value);
}

/** What a score is. */
export const MEANINGS: Readonly<Record<How, string>> = {
  effects:
    "What looking at a passage adds to the log-probability of the answer, in nats: positive " +
    "supports it. It is predicted from gradients; verify(5) hides passages and says what the " +
    "answer truly loses, for one forward pass each.",
  "leave-one-out":
    "What the answer loses in log-probability without a passage, in nats: positive supports it.",
  attention:
    "The mean weight that a passage gets from the tokens that predict the answer: where the " +
    "model looked, which says little of what it used.",
};
