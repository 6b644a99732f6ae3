import type { Theme } from "../colours/theme";
import { drawn, element } from "../dom/element";

const WORDS: Readonly<Record<Theme, string>> = {
  auto: "Colours: as the system",
  light: "Colours: light",
  dark: "Colours: dark",
};

const SHAPES: Readonly<Record<Theme, string>> = {
  auto: "M12 3a9 9 0 1 0 0 18Z",
  light:
    "M12 7.5a4.5 4.5 0 1 0 .01 0M12 2v2.5M12 19.500v2.500M2 12h2.500M19.5 12h2.500M4.9 4.900l1.8 1.800M17.3 17.300l1.8 1.800M4.9 19.100l1.8-1.800M17.3 6.700l1.8-1.8",
  dark: "M20 14.500A8.5 8.5 0 0 1 9.5 4a8.5 8.5 0 1 0 10.5 10.500Z",
};

/** The title, a line about what was looked at, and two buttons. */
export class Header {
  readonly element: HTMLElement;
  readonly #theme: HTMLButtonElement;
  readonly #shape = drawn("path");
  readonly #ring = drawn("circle", { cx: 12, cy: 12, r: 9 });

  constructor(
    title: string,
    about: string,
    nextTheme: () => void,
    help: () => void,
    /** What the numbers are about, if that needs a line of its own. */
    subject = "",
  ) {
    this.#theme = element("button", { type: "button", class: "round theme" });
    this.#theme.append(
      drawn("svg", { viewBox: "0 0 24 24", "aria-hidden": "true" }, this.#ring, this.#shape),
    );
    this.#theme.addEventListener("click", nextTheme);
    const question = element(
      "button",
      { type: "button", class: "round", "aria-label": "Help", title: "Help" },
      "?",
    );
    question.addEventListener("click", help);
    const words = element("div", { class: "titles" }, element("h1", {}, title));
    if (subject) words.append(element("p", { class: "subject" }, subject));
    if (about) words.append(element("p", { class: "about" }, about));
    this.element = element(
      "header",
      { class: "page-header" },
      words,
      element("div", { class: "buttons" }, this.#theme, question),
    );
  }

  show(theme: Theme): void {
    this.#theme.setAttribute("aria-label", WORDS[theme]);
    this.#theme.title = WORDS[theme];
    this.#shape.setAttribute("d", SHAPES[theme]);
    this.#shape.classList.toggle("filled", theme !== "light");
    this.#ring.style.display = theme === "auto" ? "" : "none";
  }
}
