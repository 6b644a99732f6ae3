import type { Attribution } from "../data/contract";
import type { State } from "./state";

/** The state as the part of an address after "#". */
export function toAddress({ word, passage, head }: State): string {
  const fields = new URLSearchParams({ passage: String(passage) });
  if (head) fields.set("head", `${head.layer}.${head.head}`);
  if (word !== null) fields.set("word", String(word));
  return fields.toString();
}

/** What an address says of the state; whatever does not fit the page is left out. */
export function fromAddress(hash: string, found: Attribution): Partial<State> {
  const fields = new URLSearchParams(hash.replace(/^#/, ""));
  const state: { -readonly [Name in keyof State]?: State[Name] } = {};
  const passage = number(fields.get("passage"));
  if (passage !== null && passage < found.passages.length) state.passage = passage;
  const [layer, head] = (fields.get("head") ?? "").split(".").map(number);
  if (layer != null && head != null && found.by_head?.[0]?.[layer]?.[head] !== undefined) {
    state.head = { layer, head };
  }
  const word = number(fields.get("word"));
  if (word !== null && found.by_token && word < found.answer.length) state.word = word;
  return state;
}

function number(words: string | null): number | null {
  return words !== null && /^\d{1,9}$/.test(words) ? Number(words) : null;
}
