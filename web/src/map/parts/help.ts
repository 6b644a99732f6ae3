import { element } from "../../dom/element";

const KEYS: readonly (readonly [readonly string[], string])[] = [
  [["+", "−"], "zoom (or the wheel, or two fingers)"],
  [["←", "→", "↑", "↓"], "move (or drag)"],
  [["0"], "the whole matrix"],
  [["d"], "down to single tokens, where the pointer is"],
  [["[", "]"], "previous or next head"],
  [["{", "}"], "layer above or below"],
  [["m"], "mean or largest weight of a cell"],
  [["l"], "logarithmic or linear colours"],
  [["t"], "light or dark"],
  [["/"], "search the text"],
  [["e"], "save a picture"],
  [["Esc"], "let go of the row"],
  [["?"], "this help"],
];

/** What the map can do, and by which keys. */
export class Help {
  readonly element: HTMLDialogElement;

  constructor() {
    const close = element("button", { type: "button", class: "plain" }, "Close");
    close.addEventListener("click", () => this.element.close());
    const rows = KEYS.map(([keys, words]) => {
      const marks = keys.flatMap((key) => [element("kbd", {}, key), " "]);
      return element("tr", {}, element("th", { scope: "row" }, ...marks), element("td", {}, words));
    });
    this.element = element(
      "dialog",
      { class: "help", "aria-labelledby": "help-title" },
      element("h2", { id: "help-title" }, "How to read the map"),
      element(
        "p",
        {},
        "Each row is a token that looks, each column a token that is looked at. Zoom in until a cell " +
          "is one pair of tokens; farther out, a cell is the mean, or the largest, of many pairs. " +
          "Click a row, or a token of the text, to see where it looks.",
      ),
      element(
        "p",
        {},
        "Above the map stands how much each token receives, to its left how widely each looks. " +
          "Choose a head with Shift to see it beside the others.",
      ),
      element(
        "table",
        {},
        element("caption", { class: "unseen" }, "Keys"),
        element("tbody", {}, ...rows),
      ),
      close,
    );
    this.element.addEventListener("click", (event) => {
      if (event.target === this.element) this.element.close();
    });
  }

  toggle(): void {
    if (this.element.open) this.element.close();
    else this.element.showModal();
  }
}
