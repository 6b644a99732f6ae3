import { element } from "../dom/element";
import type { Text } from "../page/contract";
import { layChunks } from "./chunks";
import { Minimap } from "./minimap";
import { type TokenEvents, TokenStrip } from "./token-strip";

/** A text as running text that scrolls by itself, with a strip beside it. */
export class TextPane {
  readonly element: HTMLElement;
  readonly strip: TokenStrip;
  readonly #minimap: Minimap;
  readonly #heading = element("h3", { class: "pane-name" });

  constructor(text: Text, events: TokenEvents) {
    const { chunks, tokens } = layChunks(text.pieces);
    const words = element(
      "div",
      {
        class: "words",
        role: "listbox",
        "aria-label": `Tokens of ${text.name}`,
        "aria-orientation": "horizontal",
      },
      ...chunks.map((chunk) => chunk.element),
    );
    const scroller = element("div", { class: "scroller" }, words);
    this.strip = new TokenStrip(words, tokens, events);
    this.#minimap = new Minimap(scroller, chunks);
    this.element = element(
      "section",
      { class: "pane", "aria-label": text.name },
      this.#heading,
      element("div", { class: "pane-body" }, scroller, this.#minimap.element),
    );
  }

  name(words: string): void {
    this.#heading.textContent = words;
    this.#heading.hidden = words === "";
  }

  show(tints: Int8Array, chosen: number | null, pinned: boolean): void {
    this.strip.tint(tints);
    this.strip.choose(chosen, pinned);
    this.#minimap.show(tints, chosen);
  }

  repaint(): void {
    this.#minimap.draw();
  }
}
