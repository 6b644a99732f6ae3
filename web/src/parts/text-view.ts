import { element } from "../dom/element";
import { chosenPieces, litPieces, type Scene } from "../look/scene";
import type { Hovered } from "../look/state";
import { tintsOfLit, tintsOfMeans } from "../look/tint";
import type { Text } from "../page/contract";
import { TextPane } from "./text-pane";

export interface ViewEvents {
  readonly hover: (hovered: Hovered | null, at?: Element) => void;
  readonly pick: (picked: Hovered) => void;
}

/** Running text: one pane for a text that looks at itself, two for a text that looks at another. */
export class TextView {
  readonly element = element("div", { class: "text-view" });
  readonly #panes = new Map<Text, TextPane>();
  #scene: Scene | null = null;

  constructor(private readonly events: ViewEvents) {}

  show(scene: Scene): void {
    const before = this.#scene;
    this.#scene = scene;
    const { block } = scene;
    const queries = this.#pane(block.queries);
    const keys = this.#pane(block.keys);
    if (before?.block.queries !== block.queries || before.block.keys !== block.keys) {
      this.element.replaceChildren(...new Set([queries.element, keys.element]));
      this.element.classList.toggle("two", block.crosses);
      queries.name(block.crosses ? `${block.queries.name}: looks` : "");
      if (block.crosses) keys.name(`${block.keys.name}: is looked at`);
    }
    const [chosen, lit] = scene.direction === "to" ? [queries, keys] : [keys, queries];
    if (scene.token === null) {
      // Nothing is chosen: each key shows how much it receives.
      keys.show(tintsOfMeans(scene.edges.received()), null, false);
      if (keys !== queries) queries.show(new Int8Array(scene.edges.queries), null, false);
      return;
    }
    const tints = tintsOfLit(scene.lit, litPieces(scene).length);
    if (chosen === lit) chosen.show(tints, scene.token, scene.pinned);
    else {
      lit.show(tints, null, false);
      chosen.show(new Int8Array(chosenPieces(scene).length), scene.token, scene.pinned);
    }
  }

  reveal(scene: Scene, all: boolean): void {
    if (scene.token === null) return;
    const text = scene.direction === "to" ? scene.block.queries : scene.block.keys;
    this.#pane(text).strip.reveal(scene.token, all);
  }

  repaint(): void {
    for (const pane of this.#panes.values()) pane.repaint();
  }

  #pane(text: Text): TextPane {
    let pane = this.#panes.get(text);
    if (!pane) {
      pane = new TextPane(text, {
        hover: (token, at) =>
          this.events.hover(token === null ? null : this.#seen(text, token), at),
        pick: (token) => this.events.pick(this.#seen(text, token)),
      });
      this.#panes.set(text, pane);
    }
    return pane;
  }

  /** Between two texts, the text of a token says whether it looks or is looked at. */
  #seen(text: Text, token: number): Hovered {
    const block = this.#scene?.block;
    if (!block?.crosses) return { token, direction: this.#scene?.direction ?? "to" };
    return { token, direction: text === block.queries ? "to" : "from" };
  }
}
