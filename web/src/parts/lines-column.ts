import { element } from "../dom/element";
import { inFigures } from "../look/figures";
import type { Text } from "../page/contract";
import type { Lit } from "../page/edges";
import { showAlone } from "../tokens/visible";
import { type TokenEvents, TokenStrip, tokenElement } from "./token-strip";

/** One of the two columns of tokens, one token in a row, with room for a weight beside it. */
export class LinesColumn {
  readonly element: HTMLElement;
  readonly strip: TokenStrip;
  readonly #figures: HTMLElement[] = [];
  #written: number[] = [];

  constructor(text: Text, side: "queries" | "keys", label: string, events: TokenEvents) {
    this.element = element("div", {
      class: `column ${side}`,
      role: "listbox",
      "aria-label": label,
    });
    const tokens = text.pieces.map((piece, index) => {
      const figure = element("span", { class: "figure", role: "presentation" });
      this.#figures.push(figure);
      const token = tokenElement(showAlone(piece), piece, index);
      const row = element(
        "div",
        { class: "row", role: "presentation", "data-token": index },
        token,
      );
      if (side === "queries") row.prepend(figure);
      else row.append(figure);
      this.element.append(row);
      return token;
    });
    this.strip = new TokenStrip(this.element, tokens, events);
  }

  /** Write weights beside their tokens, and take away those written before. */
  write(lit: Lit): void {
    for (const index of this.#written) {
      const figure = this.#figures[index];
      if (figure) figure.textContent = "";
    }
    this.#written = [...lit.tokens];
    for (const [rank, index] of this.#written.entries()) {
      const figure = this.#figures[index];
      if (figure) figure.textContent = inFigures(lit.weights[rank] as number, lit);
    }
  }
}
