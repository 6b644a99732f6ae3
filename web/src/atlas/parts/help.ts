import { element } from "../../dom/element";

const KEYS: readonly (readonly [readonly string[], string])[] = [
  [["←", "→", "↑", "↓"], "in the grid: the head beside, the layer above or below"],
  [["Home", "End"], "in the grid: the first or last head of the layer"],
  [["[", "]"], "previous or next head"],
  [["m"], "next measure (with Shift: the one before)"],
  [["Esc"], "show all labels"],
  [["?"], "this help"],
];

/** What the report can do, and by which keys. */
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
      element("h2", { id: "help-title" }, "How to use this report"),
      element(
        "p",
        {},
        "Rows of the grid are layers, columns are heads. Choose what colours it; choose a head to see " +
          "all about it. A letter stands for a label of a head: choose the label below the grid to let " +
          "its heads stand out. The address of the page remembers what you look at.",
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
