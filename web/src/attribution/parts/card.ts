import { element } from "../../dom/element";
import type { Tooltip } from "../../parts/tooltip";
import { showAlone, showText } from "../../tokens/visible";
import type { Attribution } from "../data/contract";
import { type HeadPlace, knownFor, nameOf, piecesOf, ranked, strongestHead } from "../data/scores";
import { figureOf } from "../look/words";
import { headLooks } from "./head-looks";
import { HeadsGrid } from "./heads-grid";

/** All about one passage: its scores, and the heads that carried it. */
export class Card {
  readonly element: HTMLElement;
  readonly #name = element("h2", { tabindex: -1 });
  readonly #facts = element("p", { class: "facts" });
  readonly #text = element("p", { class: "passage-text" });
  /** Read out by screen readers when another passage is chosen. */
  readonly #status = element("div", { class: "unseen", role: "status" });
  readonly #grid: HeadsGrid | null;
  readonly #looks = element("div", { class: "looks" });

  constructor(
    private readonly found: Attribution,
    tooltip: Tooltip,
    commands: { head: (place: HeadPlace) => void; back: () => void },
  ) {
    const back = element("button", { type: "button", class: "plain back" }, "↑ Prompt");
    back.addEventListener("click", commands.back);
    this.#grid = found.by_head ? new HeadsGrid(found, tooltip, commands.head) : null;
    this.element = element(
      "section",
      { class: "panel passage-card fades", "aria-label": "The chosen passage" },
      element("div", { class: "panel-head" }, this.#name, back),
      this.#facts,
      this.#status,
      this.#text,
    );
    const words = this.#grid
      ? "Through which heads, for the whole answer. Rows are layers."
      : "Leaving passages out says nothing of heads: scores by effects do.";
    this.element.append(element("p", { class: "small-print" }, words));
    if (this.#grid) this.element.append(this.#grid.element, this.#looks);
  }

  show(
    passage: number,
    head: HeadPlace | null,
    word: number | null,
    stops: readonly string[],
  ): void {
    const { scores, by_token, exact, disagreements, answer } = this.found;
    const name = nameOf(this.found, passage);
    this.#name.textContent = name;
    const rank = 1 + ranked(knownFor(this.found, null)).indexOf(passage);
    const facts = [`${figureOf(this.found, scores[passage] ?? 0)} for the whole answer`];
    facts.push(`rank ${rank} of ${scores.length}`);
    const value = word === null ? undefined : by_token?.[word]?.[passage];
    if (word !== null && value !== undefined)
      facts.push(`${figureOf(this.found, value)} for “${showAlone(answer[word] ?? "")}”`);
    const lost = exact[passage] ?? null;
    if (lost !== null) facts.push(`without it, the answer loses ${figureOf(this.found, lost)}`);
    const disagreement = disagreements[passage] ?? null;
    if (disagreement !== null) facts.push(`measured and predicted disagree: ${disagreement}`);
    this.#facts.textContent = facts.join(" · ");
    const status = `${name}, ${facts.join(", ")}`;
    if (this.#status.textContent !== status) this.#status.textContent = status;
    const place = head ?? strongestHead(this.found, passage);
    const looked = place !== null && (this.found.looks?.[passage]?.length ?? 0) > 0;
    this.#text.textContent = looked ? "" : showText(piecesOf(this.found, passage).join(""));
    if (!place || !this.#grid) return;
    this.#grid.show(passage, place, stops);
    this.#looks.replaceChildren(...headLooks(this.found, passage, place, stops));
  }

  lay(height: number): void {
    const { paddingLeft, paddingRight } = getComputedStyle(this.element);
    const padding = Number.parseFloat(paddingLeft) + Number.parseFloat(paddingRight);
    this.#grid?.lay(this.element.clientWidth - padding - 12, height);
  }

  /** Go to the card, where it is out of sight. */
  reveal(): void {
    const { top, bottom } = this.#name.getBoundingClientRect();
    if (top >= 0 && bottom <= innerHeight) return;
    this.element.scrollIntoView({ block: "start" });
  }
}
