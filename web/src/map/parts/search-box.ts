import { element } from "../../dom/element";
import { count } from "../../look/figures";

export interface SearchEvents {
  readonly find: (words: string) => void;
  readonly step: (by: number) => void;
}

/** Words to look for, and steps from place to place. */
export class SearchBox {
  readonly element: HTMLElement;
  readonly #input = element("input", {
    type: "search",
    placeholder: "Search the text",
    "aria-label": "Search the text",
    autocomplete: "off",
    spellcheck: "false",
  });
  readonly #found = element("span", { class: "found", "aria-live": "polite" });
  #words = "";

  constructor(private readonly events: SearchEvents) {
    const button = (words: string, name: string, by: number): HTMLButtonElement => {
      const made = element("button", { type: "button", "aria-label": name, title: name }, words);
      made.addEventListener("click", () => this.events.step(by));
      return made;
    };
    this.element = element(
      "div",
      { class: "search", role: "search" },
      this.#input,
      this.#found,
      button("↑", "Previous match", -1),
      button("↓", "Next match", 1),
    );
    this.#input.addEventListener("input", () => {
      this.#words = this.#input.value;
      events.find(this.#words);
    });
    this.#input.addEventListener("keydown", (event) => this.#key(event));
    this.show(0, -1, false);
  }

  focus(): void {
    this.#input.focus();
    this.#input.select();
  }

  show(matches: number, here: number, more: boolean): void {
    this.element.classList.toggle("searching", this.#words !== "");
    if (this.#words === "") this.#found.textContent = "";
    else if (matches === 0) this.#found.textContent = "not found";
    else this.#found.textContent = `${count(here + 1)} of ${count(matches)}${more ? "+" : ""}`;
  }

  #key(event: KeyboardEvent): void {
    if (event.key === "Enter") this.events.step(event.shiftKey ? -1 : 1);
    else if (event.key === "ArrowDown") this.events.step(1);
    else if (event.key === "ArrowUp") this.events.step(-1);
    else if (event.key === "Escape") {
      this.#input.value = "";
      this.#words = "";
      this.events.find("");
      this.#input.blur();
    } else return;
    event.preventDefault();
  }
}
