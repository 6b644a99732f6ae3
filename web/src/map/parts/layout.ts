import { element } from "../../dom/element";

export type Side = "heads" | "text";

/** As wide as in style/narrow.css: below this, panels lie over or below the map. */
const NARROW = 820;
const BOTH_PANELS = 1180;
const TALL = 700;

/** Heads, maps and text beside each other; heads and text can be put away. */
export class Layout {
  readonly element: HTMLElement;

  constructor(
    heads: HTMLElement,
    middle: HTMLElement,
    text: HTMLElement,
    private readonly changed: (side: Side, open: boolean) => void,
  ) {
    this.element = element("div", { class: "map-workspace" }, heads, middle, text);
    middle.addEventListener("pointerdown", () => this.uncover());
  }

  /** Put the heads away where they lie over the map: they have done their work. */
  uncover(): void {
    if (innerWidth < NARROW) this.#set("heads", false);
  }

  /** Open what there is room for. */
  start(): void {
    this.#set("heads", innerWidth >= NARROW);
    this.#set("text", innerWidth >= BOTH_PANELS || (innerWidth < NARROW && innerHeight > TALL));
  }

  toggle(side: Side): void {
    this.#set(side, this.element.classList.contains(`no-${side}`));
  }

  #set(side: Side, open: boolean): void {
    this.element.classList.toggle(`no-${side}`, !open);
    this.changed(side, open);
  }
}
