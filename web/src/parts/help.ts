import { element } from "../dom/element";

/** Keys of the keyboard, and what they do. */
export type Key = readonly [readonly string[], string];

/** What a page can do, and by which keys: a dialog. */
export class Help {
  readonly element: HTMLDialogElement;

  constructor(title: string, paragraphs: readonly string[], keys: readonly Key[]) {
    const close = element("button", { type: "button", class: "plain" }, "Close");
    close.addEventListener("click", () => this.element.close());
    const rows = keys.map(([names, words]) => {
      const marks = names.flatMap((name) => [element("kbd", {}, name), " "]);
      return element("tr", {}, element("th", { scope: "row" }, ...marks), element("td", {}, words));
    });
    this.element = element(
      "dialog",
      { class: "help", "aria-labelledby": "help-title" },
      element("h2", { id: "help-title" }, title),
      ...paragraphs.map((words) => element("p", {}, words)),
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
