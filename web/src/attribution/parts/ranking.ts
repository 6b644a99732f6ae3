import type { Diverging } from "../../colours/diverging";
import { element } from "../../dom/element";
import { showAround } from "../../tokens/visible";
import type { Attribution } from "../data/contract";
import { nameOf, piecesOf, ranked } from "../data/scores";
import { figureOf, MEANINGS } from "../look/words";

/** All passages, the largest score first, with bars on both sides of 0. */
export class Ranking {
  readonly element: HTMLElement;
  readonly #list = element("ol", { class: "ranking" });
  readonly #title = element("h2", {}, "Passages");
  readonly #rows: readonly Row[];

  constructor(
    private readonly found: Attribution,
    choose: (passage: number) => void,
  ) {
    this.#rows = found.passages.map((_, number) => new Row(found, number, () => choose(number)));
    this.element = element(
      "section",
      { class: "panel ranking-panel", "aria-label": "Passages by score" },
      this.#title,
      this.#list,
      element("p", { class: "small-print" }, MEANINGS[found.how]),
    );
    for (const note of found.notes) {
      this.element.append(element("p", { class: "small-print" }, note));
    }
  }

  /** Passages are in the order of what is known of them, which bars show; figures are scores. */
  show(
    scores: readonly number[],
    known: readonly number[],
    scale: Diverging,
    chosen: number,
  ): void {
    const low = Math.min(0, ...known);
    const high = Math.max(0, ...known);
    const order = ranked(known);
    this.#list.replaceChildren(
      ...order.map((number, rank) => {
        const row = this.#rows[number] as Row;
        row.show(known[number] ?? 0, low, high, scale, number === chosen);
        row.name(scores[number] ?? 0, rank + 1);
        return row.element;
      }),
    );
    const many = this.found.passages.length;
    this.#title.textContent = many === 1 ? "1 passage" : `${many} passages`;
  }
}

class Row {
  readonly element: HTMLElement;
  readonly #button: HTMLButtonElement;
  readonly #score = element("span", { class: "score" });
  readonly #bar = element("span", { class: "effect-fill" });
  readonly #zero = element("span", { class: "effect-zero" });

  constructor(
    private readonly found: Attribution,
    private readonly number: number,
    choose: () => void,
  ) {
    const text = showAround(piecesOf(found, number));
    this.#button = element(
      "button",
      { type: "button", class: "ranking-row", "data-passage": number },
      element("span", { class: "excerpt" }, text),
      this.#score,
      element("span", { class: "effect-bar", "aria-hidden": "true" }, this.#bar, this.#zero),
    );
    const exact = found.exact[number] ?? null;
    if (exact !== null) {
      const words = `hidden: ${figureOf(found, exact)}`;
      this.#button.append(element("span", { class: "exact" }, words));
      const disagreement = found.disagreements[number] ?? null;
      if (disagreement !== null) {
        this.#button.append(element("span", { class: "disagrees" }, disagreement));
      }
    }
    this.#button.addEventListener("click", choose);
    this.element = element("li", {}, this.#button);
  }

  show(value: number, low: number, high: number, scale: Diverging, chosen: boolean): void {
    this.#button.setAttribute("aria-current", String(chosen));
    const place = (number: number): number => (high > low ? (number - low) / (high - low) : 0);
    const [from, to] = [place(Math.min(0, value)), place(Math.max(0, value))];
    this.#bar.style.left = `${100 * from}%`;
    this.#bar.style.width = `${100 * (to - from)}%`;
    this.#zero.style.left = `${100 * place(0)}%`;
    scale.paint(this.#bar, Math.sign(value) * scale.most);
  }

  name(score: number, rank: number): void {
    this.#score.textContent = figureOf(this.found, score);
    this.#button.title = `Rank ${rank}: ${nameOf(this.found, this.number)}`;
  }
}
