import type { Atlas } from "../data/contract";
import { shortName } from "./names";
import type { State } from "./state";

/** The state as the part of an address after "#". */
export function toAddress(state: State, atlas: Atlas): string {
  const fields = new URLSearchParams({ measure: state.measure });
  const head = atlas.heads[state.head];
  if (head) fields.set("head", shortName(head));
  if (state.label) fields.set("label", state.label);
  return fields.toString();
}

/** What an address says of the state; whatever does not fit the report is left out. */
export function fromAddress(hash: string, atlas: Atlas): Partial<State> {
  const fields = new URLSearchParams(hash.replace(/^#/, ""));
  const state: { -readonly [Name in keyof State]?: State[Name] } = {};
  const measure = fields.get("measure");
  if (atlas.measures.some((each) => each.id === measure)) state.measure = measure as string;
  const head = atlas.heads.findIndex((each) => shortName(each) === fields.get("head"));
  if (head >= 0) state.head = head;
  const label = fields.get("label");
  if (atlas.labels.some((each) => each.label === label)) state.label = label as string;
  return state;
}
