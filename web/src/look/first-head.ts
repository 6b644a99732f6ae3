import type { Block } from "./blocks";
import type { Place } from "./state";

/**
 * A head worth seeing first: one that looks sharply, and not only at the first token, the previous
 * one or itself. Without measures it is the first head.
 */
export function firstHead(blocks: readonly Block[], highestEntropy: number): Place {
  let best: Place = { block: 0, section: 0 };
  let highest = 0;
  for (const block of blocks) {
    for (let head = 0; head < block.heads; head++) {
      const measured = (id: string): number => block.measures[id]?.[head] ?? Number.NaN;
      const distance = measured("distance");
      const sharp = 1 - measured("entropy") / highestEntropy;
      const telling =
        sharp * (1 - measured("first")) * (1 - measured("previous")) * (distance / (1 + distance));
      if (telling > highest) {
        highest = telling;
        best = { block: block.index, section: head };
      }
    }
  }
  return best;
}
