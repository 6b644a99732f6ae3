import type { Diverging } from "../../colours/diverging";
import { element } from "../../dom/element";
import type { Tooltip } from "../../parts/tooltip";
import { showAlone, showText } from "../../tokens/visible";
import type { Attribution } from "../data/contract";
import { nameOf } from "../data/scores";
import { reachable, roving } from "../look/roving";
import { figureOf } from "../look/words";

/** The prompt, its passages shaded by their scores. */
export class PromptPanel {
  readonly element: HTMLElement;
  readonly #text = element("div", { class: "prompt" });
  readonly #scroller: HTMLElement;
  readonly #passages: readonly HTMLElement[];
  readonly #legend = element("div", { class: "legend" });
  #scores: readonly number[] = [];
  #word: number | null = null;

  constructor(
    private readonly found: Attribution,
    tooltip: Tooltip,
    choose: (passage: number, pointed: boolean) => void,
  ) {
    this.#passages = found.passages.map((_, number) => this.#passage(number, tooltip, choose));
    this.#fill();
    roving(this.#passages, (passage) => choose(passage, false));
    this.#scroller = element("div", { class: "prompt-scroller" }, this.#text);
    this.element = element(
      "section",
      { class: "panel prompt-panel", "aria-label": "The prompt" },
      element("div", { class: "panel-head" }, element("h2", {}, "Prompt"), this.#legend),
      this.#scroller,
    );
  }

  /** Passages are shaded by what is known of them, and named with their scores. */
  show(
    scores: readonly number[],
    known: readonly number[],
    scale: Diverging,
    chosen: number,
    word: number | null,
  ): void {
    this.#scores = scores;
    this.#word = word;
    for (const [number, made] of this.#passages.entries()) {
      scale.paint(made, known[number] ?? 0);
      made.setAttribute("aria-pressed", String(number === chosen));
      made.setAttribute("aria-description", this.#words(number));
    }
    reachable(this.#passages, chosen);
    this.#legend.replaceChildren(...this.#legendOf(scale, word));
  }

  /** Scroll the prompt, and never the page, so that a passage is seen. */
  reveal(passage: number): void {
    const box = this.#scroller.getBoundingClientRect();
    const { top, bottom } = this.#passages[passage]?.getBoundingClientRect() ?? box;
    if (top >= box.top && bottom <= box.bottom) return;
    this.#scroller.scrollTop += top - box.top - Math.max(12, (box.height - (bottom - top)) / 3);
  }

  #passage(
    number: number,
    tooltip: Tooltip,
    choose: (passage: number, pointed: boolean) => void,
  ): HTMLElement {
    const made = element("span", { class: "passage", role: "button", "data-passage": number });
    made.addEventListener("click", () => choose(number, true));
    made.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      choose(number, false);
    });
    made.addEventListener("pointermove", (event) => {
      if (event.pointerType === "touch") return;
      tooltip.show(this.#words(number), event.clientX, event.clientY);
    });
    made.addEventListener("pointerleave", () => tooltip.hide());
    return made;
  }

  /** Passages between what belongs to none of them. Spaces at their ends are not shaded. */
  #fill(): void {
    let before = 0;
    for (const [number, [start, stop]] of this.found.passages.entries()) {
      const text = this.found.prompt.slice(start, stop).join("");
      const inner = text.trim();
      const at = text.indexOf(inner);
      const between = this.found.prompt.slice(before, start).join("");
      const passage = this.#passages[number] as HTMLElement;
      passage.append(showText(inner));
      this.#text.append(showText(between + text.slice(0, at)), passage);
      this.#text.append(showText(text.slice(at + inner.length)));
      before = stop;
    }
    this.#text.append(showText(this.found.prompt.slice(before).join("")));
  }

  #words(number: number): string {
    const parts = [nameOf(this.found, number), figureOf(this.found, this.#scores[number] ?? 0)];
    const lost = this.#word === null ? (this.found.exact[number] ?? null) : null;
    if (lost !== null) parts.push(`hidden: ${figureOf(this.found, lost)}`);
    return parts.join(" · ");
  }

  #legendOf(scale: Diverging, word: number | null): HTMLElement[] {
    const signed = this.found.how !== "attention";
    const bar = element("span", { class: "bar", "aria-hidden": "true" });
    bar.style.backgroundImage = scale.gradient(signed);
    const [low, high] = [signed ? figureOf(this.found, -scale.most) : "0", scale.most];
    const whom = word === null ? "the answer" : `“${showAlone(this.found.answer[word] ?? "")}”`;
    const ends = signed ? ["opposes ", " supports "] : ["", " looked at for "];
    return [
      element(
        "div",
        { class: "scale" },
        element("span", {}, `${ends[0]}${low}`),
        bar,
        element("span", {}, `${figureOf(this.found, high)}${ends[1]}`, element("b", {}, whom)),
      ),
    ];
  }
}
