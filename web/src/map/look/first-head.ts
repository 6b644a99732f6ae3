import type { HeadRef, Info } from "../data/contract";
import { allHeads } from "../data/heads";

/**
 * A head worth seeing first: one that looks sharply and far, and not only at the first token, the
 * previous one or itself. Without measures it is the first head.
 */
export function firstHead(info: Info): HeadRef {
  const heads = allHeads(info);
  let best = heads[0] ?? { call: 0, head: 0 };
  let highest = 0;
  for (const ref of heads) {
    const { call, head } = ref;
    if (call === "all" || head === "mean") continue;
    const facts = info.calls[call];
    const measured = (name: string): number => facts?.measures[name]?.[head] ?? Number.NaN;
    const distance = measured("distance");
    const sharp = 1 - measured("entropy") / Math.log(Math.max(2, facts?.keys ?? 2));
    const nearby = measured("first") + measured("previous") + measured("itself");
    const telling = sharp * (1 - nearby) * (distance / (1 + distance));
    if (telling > highest) {
      highest = telling;
      best = ref;
    }
  }
  return best;
}
