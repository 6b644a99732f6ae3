import { element } from "../../dom/element";

/** One calm line about what is wrong, with a button that tries again. */
export class Alert {
  readonly element = element("div", { class: "alert", role: "alert", hidden: true });
  readonly #words = element("span");
  readonly #wrong = new Map<string, string>();

  constructor(retry: () => void) {
    const again = element("button", { type: "button", class: "plain" }, "Try again");
    again.addEventListener("click", retry);
    this.element.append(this.#words, again);
  }

  /** Say what is wrong with something, for as long as it is; null when it no longer is. */
  show(name: string, words: string | null): void {
    if (words === null) this.#wrong.delete(name);
    else this.#wrong.set(name, words);
    const [first] = this.#wrong.values();
    this.element.hidden = first === undefined;
    if (first !== undefined && this.#words.textContent !== first) this.#words.textContent = first;
  }
}
