import { element } from "../dom/element";

const GAP = 14;

/** A line of words beside the pointer. What it says can be had without a pointer too. */
export class Tooltip {
  readonly element = element("div", { class: "tooltip", "aria-hidden": "true", hidden: true });

  show(words: string, x: number, y: number): void {
    this.element.textContent = words;
    this.element.hidden = false;
    const { width, height } = this.element.getBoundingClientRect();
    const right = x + GAP + width < innerWidth ? x + GAP : x - GAP - width;
    const below = y + GAP + height < innerHeight ? y + GAP : y - GAP - height;
    this.element.style.transform = `translate(${Math.max(4, right)}px, ${Math.max(4, below)}px)`;
  }

  hide(): void {
    this.element.hidden = true;
  }
}
