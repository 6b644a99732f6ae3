import { element } from "../dom/element";

const KEYS: readonly (readonly [readonly string[], string])[] = [
  [["←", "→"], "previous or next token"],
  [["↑", "↓"], "layer above or below"],
  [["[", "]"], "previous or next head (or Shift with ← and →)"],
  [["m"], "mean of the heads, and back"],
  [["r"], "where it looks, or who looks at it"],
  [["t"], "lines or text"],
  [["Esc"], "let go of the token"],
  [["?"], "this help"],
];

/** What the page can do, and by which keys. */
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
      element("h2", { id: "help-title" }, "How to use this page"),
      element(
        "p",
        {},
        "Choose a head in the grid. Point at a token to see where it looks; click it to keep it. " +
          "Stronger colour means more weight.",
      ),
      element(
        "table",
        {},
        element("caption", { class: "unseen" }, "Keys"),
        element("tbody", {}, ...rows),
      ),
      close,
    );
    // A click beside the dialog closes it.
    this.element.addEventListener("click", (event) => {
      if (event.target === this.element) this.element.close();
    });
  }

  toggle(): void {
    if (this.element.open) this.element.close();
    else this.element.showModal();
  }
}
