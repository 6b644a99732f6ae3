import { capitalized } from "../../look/blocks";
import type { Call, HeadRef, Info, Pool } from "./contract";

/** What is known of a head that can be shown: its size, its levels and its names. */
export interface HeadFacts {
  readonly ref: HeadRef;
  /** As people say it: 18.6, 18.mean, encoder 3.1, all. */
  readonly name: string;
  /** Above its map: "Layer 18, head 6". */
  readonly title: string;
  /** In a sentence: "head 18.6", "the mean of all heads". */
  readonly words: string;
  readonly call: Call;
  readonly queries: number;
  readonly keys: number;
  readonly causal: boolean;
  /** The level whose cells are single pairs. */
  readonly fullZoom: number;
  /** The deepest level that can be asked for. */
  readonly maxZoom: number;
}

export function factsOf(info: Info, ref: HeadRef): HeadFacts | null {
  const call = info.calls[ref.call === "all" ? 0 : ref.call];
  if (!call) return null;
  const { queries, keys } = call;
  const deepest = info.published?.maxZoom ?? Number.POSITIVE_INFINITY;
  if (ref.call === "all") {
    if (!info.all) return null;
    const { maxZoom, fullZoom } = info.all;
    const levels = { fullZoom, maxZoom: Math.min(maxZoom, deepest) };
    const causal = info.calls.every((each) => each.causal);
    const names = { name: "all", title: "All heads, mean", words: "the mean of all heads" };
    return { ref, ...names, call, queries, keys, causal, ...levels };
  }
  if (ref.head !== "mean" && ref.head >= call.heads) return null;
  const name = `${nameOfCall(call)}.${ref.head}`;
  const names = { name, title: titleOf(call, ref.head), words: `head ${name}` };
  const levels = { fullZoom: call.maxZoom, maxZoom: Math.min(call.maxZoom, deepest) };
  const { causal } = call;
  return { ref, ...names, call, queries, keys, causal, ...levels };
}

function titleOf(call: Call, head: number | "mean"): string {
  const layer = call.layer === "" ? call.module : `${call.group} layer ${call.layer}`.trim();
  return `${capitalized(layer)}, ${head === "mean" ? "mean of heads" : `head ${head}`}`;
}

/** The facts of a head that must be there. */
export function knownFacts(info: Info, ref: HeadRef): HeadFacts {
  const facts = factsOf(info, ref);
  if (!facts) throw new Error("This recording has no heads.");
  return facts;
}

export function nameOfCall(call: Call): string {
  return call.group ? `${call.group} ${call.layer}` : call.layer;
}

/** Whether a head is there: in a published folder, some may not be. */
export function isThere(info: Info, ref: HeadRef): boolean {
  if (ref.call === "all") return info.all !== null && listed(info, "all", "mean");
  const call = info.calls[ref.call];
  if (!call || (ref.head !== "mean" && ref.head >= call.heads)) return false;
  return listed(info, String(ref.call), String(ref.head));
}

function listed(info: Info, call: string, head: string): boolean {
  if (!info.published) return true;
  return info.published.heads.some((each) => each[0] === call && each[1] === head);
}

/** All heads that are there, layer by layer, each layer's mean last; the mean of all at the end. */
export function allHeads(info: Info): HeadRef[] {
  const refs: HeadRef[] = info.calls.flatMap((call, index) => [
    ...Array.from({ length: call.heads }, (_, head): HeadRef => ({ call: index, head })),
    { call: index, head: "mean" },
  ]);
  refs.push({ call: "all", head: "mean" });
  return refs.filter((ref) => isThere(info, ref));
}

/** The head to show first: the one that the recording names, or else the first that is there. */
export function firstHead(info: Info): HeadRef {
  const { first } = info;
  if (first && isThere(info, first)) return first;
  return allHeads(info)[0] ?? { call: 0, head: 0 };
}

export function sameHead(one: HeadRef, other: HeadRef): boolean {
  return one.call === other.call && one.head === other.head;
}

/** What cells can show. */
export function poolsOf(info: Info): Pool[] {
  const pools: readonly Pool[] = info.effects ? ["mean", "max", "effect"] : ["mean", "max"];
  return pools.filter((pool) => info.published?.pools.includes(pool) !== false);
}

export function nextPool(info: Info, pool: Pool): Pool {
  const pools = poolsOf(info);
  return pools[(pools.indexOf(pool) + 1) % pools.length] ?? pool;
}

/** The name under which the tiles of a head are kept. */
export function tilesetOf(ref: HeadRef, pool: Pool): string {
  return ref.call === "all" ? `all-${pool}` : `${headKey(ref)}-${pool}`;
}

/** The name of a head in paths and in the address. */
export function headKey(ref: HeadRef): string {
  return ref.call === "all" ? "all" : `c${ref.call}-h${ref.head}`;
}

export function headFromKey(key: string): HeadRef | null {
  if (key === "all") return { call: "all", head: "mean" };
  const parts = /^c(\d{1,5})-h(\d{1,5}|mean)$/.exec(key);
  if (!parts) return null;
  return { call: Number(parts[1]), head: parts[2] === "mean" ? "mean" : Number(parts[2]) };
}
