import { element } from "../../dom/element";

/** One calm line about what is wrong, with a button that tries again. */
export class Alert {
  readonly element = element("div", { class: "alert", role: "alert", hidden: true });
  readonly #words = element("span");

  constructor(retry: () => void) {
    const again = element("button", { type: "button", class: "plain" }, "Try again");
    again.addEventListener("click", retry);
    this.element.append(this.#words, again);
  }

  /** Say what goes wrong with something that is under way. */
  trying(work: Promise<unknown>): void {
    work.catch((error) => this.show(error instanceof Error ? error.message : String(error)));
  }

  show(words: string | null): void {
    if (words === null) {
      this.element.hidden = true;
      return;
    }
    if (this.#words.textContent !== words) this.#words.textContent = words;
    this.element.hidden = false;
  }
}
