import type { Block } from "./blocks";
import { SENTENCES, type State, VIEWS } from "./state";

/** The state as the part of an address after "#". */
export function toAddress(state: State, blocks: readonly Block[]): string {
  const block = blocks[state.place.block];
  const layers = blocks.filter((each) => each.id.startsWith("regard-edges-")).length;
  const fields = new URLSearchParams();
  if (state.place.block < layers) {
    fields.set("layer", String(state.place.block));
    fields.set("head", state.place.section === block?.heads ? "mean" : String(state.place.section));
  } else {
    fields.set("average", String(state.place.block - layers));
  }
  if (state.token !== null) fields.set("token", String(state.token));
  fields.set("view", state.view);
  if (state.direction === "from") fields.set("direction", "from");
  if (state.sentences !== "all") fields.set("sentences", state.sentences.replace(" → ", ""));
  // Pages of effects begin with another colour.
  if (state.colouredBy !== "map" || block?.over === "sum") fields.set("colour", state.colouredBy);
  return fields.toString();
}

/** What an address says of the state; whatever does not fit the page is left out. */
export function fromAddress(hash: string, blocks: readonly Block[]): Partial<State> {
  const fields = new URLSearchParams(hash.replace(/^#/, ""));
  const whole = (name: string): number | null => {
    const value = fields.get(name);
    return value !== null && /^\d{1,9}$/.test(value) ? Number(value) : null;
  };
  const state: { -readonly [Name in keyof State]?: State[Name] } = {};
  const layers = blocks.filter((block) => block.id.startsWith("regard-edges-")).length;
  const layer = whole("layer");
  const average = whole("average");
  const index = average !== null ? layers + average : layer;
  const block = blocks[index ?? -1];
  if (block && (average !== null || block.index < layers)) {
    const head = whole("head");
    state.place = {
      block: block.index,
      section: head !== null && head < block.heads ? head : block.heads,
    };
  }
  const direction = fields.get("direction");
  if (direction === "from" || direction === "to") state.direction = direction;
  const view = VIEWS.find((each) => each === fields.get("view"));
  if (view) state.view = view;
  const sentences = SENTENCES.find((each) => each.replace(" → ", "") === fields.get("sentences"));
  if (sentences) state.sentences = sentences;
  const token = whole("token");
  if (token !== null) {
    state.token = token;
    state.pinned = true;
  }
  const colour = fields.get("colour");
  if (colour) state.colouredBy = colour;
  return state;
}
