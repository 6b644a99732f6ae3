import type { HeadRef, Info } from "../data/contract";
import { allHeads, isThere, sameHead } from "../data/heads";

/** The head before or after another, in the order of the grid; after the last comes the first. */
export function nextHead(info: Info, ref: HeadRef, step: number): HeadRef {
  const heads = allHeads(info);
  const now = heads.findIndex((each) => sameHead(each, ref));
  return heads[(now + step + heads.length) % heads.length] ?? ref;
}

/** The same head of the next layer that has it. */
export function nextLayer(info: Info, ref: HeadRef, step: number): HeadRef {
  if (ref.call === "all") return ref;
  for (let call = ref.call + step; call >= 0 && call < info.calls.length; call += step) {
    const next: HeadRef = { call, head: ref.head };
    if (isThere(info, next)) return next;
  }
  return ref;
}
