import { Diverging, mostOf } from "../../colours/diverging";
import { element } from "../../dom/element";
import { showAlone, showPiece } from "../../tokens/visible";
import type { Attribution } from "../data/contract";
import { nameOf } from "../data/scores";
import { reachable, roving } from "../look/roving";
import { figureOf } from "../look/words";

interface Events {
  /** A pointer is over a word, or over none any more. */
  readonly hover: (word: number | null) => void;
  readonly choose: (word: number | null) => void;
}

/** The answer. Its words can be pointed at if passages are scored for each of them. */
export class AnswerPanel {
  readonly element: HTMLElement;
  readonly #words: readonly HTMLElement[];
  readonly #whole = element("button", { type: "button", class: "plain" }, "Whole answer");
  readonly #print = element("p", { class: "small-print" });
  readonly #most: number;
  #chosen: number | null = null;

  constructor(
    private readonly found: Attribution,
    private readonly events: Events,
  ) {
    this.#most = mostOf(found.by_token?.flat() ?? []);
    this.#words = found.by_token ? found.answer.map((_, word) => this.#word(word)) : [];
    const text = element("p", { class: "answer" });
    for (const [number, piece] of found.answer.entries()) {
      const { before, token, after } = showPiece(piece);
      const word = this.#words[number];
      word?.append(token);
      text.append(before, word ?? token, after);
    }
    roving(this.#words, (word) => events.choose(word));
    this.#whole.addEventListener("click", () => events.choose(null));
    const figure = found.log_prob.toFixed(2).replace("-", "−");
    this.element = element(
      "section",
      { class: "panel answer-panel", "aria-label": "The answer" },
      element("div", { class: "panel-head" }, element("h2", {}, "Answer"), this.#whole),
      text,
      element("p", { class: "small-print log-prob" }, `log-probability ${figure}`),
      this.#print,
    );
  }

  show(word: number | null, passage: number, stops: readonly string[]): void {
    this.#chosen = word;
    this.#whole.hidden = word === null;
    if (this.#words.length === 0) {
      this.#print.textContent =
        "Scores are for the answer as a whole; each_token=True scores its words too.";
      return;
    }
    const scale = new Diverging(stops, this.#most);
    for (const [number, made] of this.#words.entries()) {
      const value = this.found.by_token?.[number]?.[passage] ?? 0;
      scale.paint(made, value);
      made.setAttribute("aria-pressed", String(number === word));
      const name = showAlone(this.found.answer[number] ?? "");
      made.title = `${name}: ${figureOf(this.found, value)} from ${nameOf(this.found, passage)}`;
    }
    reachable(this.#words, word ?? 0);
    this.#print.textContent =
      "Choose a word to score passages for it alone. Words are shaded by what the chosen passage " +
      `does to them: ${nameOf(this.found, passage)}`;
  }

  #word(number: number): HTMLElement {
    const made = element("span", { class: "token word", role: "button" });
    made.addEventListener("click", () => this.#toggle(number));
    made.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      this.#toggle(number);
    });
    made.addEventListener("pointerenter", (event) => {
      if (event.pointerType !== "touch") this.events.hover(number);
    });
    made.addEventListener("pointerleave", () => this.events.hover(null));
    return made;
  }

  #toggle(number: number): void {
    this.events.choose(this.#chosen === number ? null : number);
  }
}
