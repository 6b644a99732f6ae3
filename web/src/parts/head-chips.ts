import { element } from "../dom/element";
import type { Block } from "../look/blocks";

/** Hues that are told apart without telling red from green. */
const HUES = 8;

/** Beyond eight heads hues repeat in lines that are dashed in other ways: strokes and gaps, in
 * pixels. Only beyond 48 heads two heads look alike. */
const DASHES = [[], [7, 4], [2, 4], [12, 4, 2, 4], [12, 4, 2, 4, 2, 4], [16, 8]] as const;

/** The heads of a mean, each in its colour; a click shows one alone, further ones add or take away. */
export class HeadChips {
  readonly element = element("div", { class: "chips", role: "group", "aria-label": "Heads" });
  #block: Block | null = null;
  #chosen = new Set<number>();

  constructor(private readonly changed: () => void) {
    this.element.addEventListener("click", (event) => {
      const chip = event.target instanceof Element ? event.target.closest("button") : null;
      if (chip) this.#toggle(Number(chip.dataset.section));
    });
  }

  /** The heads whose lines are shown. */
  show(block: Block): readonly number[] {
    if (block !== this.#block) {
      this.#block = block;
      this.#chosen.clear();
    }
    const all = Array.from({ length: block.heads }, (_, section) => section);
    const shown = this.#chosen.size > 0 ? [...this.#chosen] : all;
    if (this.element.childElementCount !== block.heads) {
      this.element.replaceChildren(...all.map((section) => chipOf(block, section)));
    }
    for (const [section, chip] of [...this.element.children].entries()) {
      chip.setAttribute("aria-pressed", String(shown.includes(section)));
    }
    return shown;
  }

  #toggle(section: number): void {
    if (!this.#chosen.delete(section)) this.#chosen.add(section);
    this.changed();
  }
}

/** The colour of the lines of a head. */
export function hueOf(section: number): string {
  return `var(--head-${section % HUES})`;
}

/** The dashes of the lines of a head; none of the first heads. */
export function dashesOf(section: number): readonly number[] {
  return DASHES[Math.floor(section / HUES) % DASHES.length] ?? [];
}

/** The line of a head as a background. */
function lineOf(section: number): string {
  const dashes = dashesOf(section);
  if (dashes.length === 0) return `linear-gradient(${hueOf(section)} 0 0)`;
  let at = 0;
  const stops = dashes.map((length, place) => {
    const colour = place % 2 === 0 ? hueOf(section) : "transparent";
    const stop = `${colour} ${at}px ${at + length}px`;
    at += length;
    return stop;
  });
  return `repeating-linear-gradient(to right, ${stops.join(", ")})`;
}

function chipOf(block: Block, section: number): HTMLElement {
  const number = String(block.headNumbers[section]);
  const chip = element("button", {
    type: "button",
    "data-section": section,
    "aria-label": `Head ${number}`,
  });
  chip.textContent = number;
  chip.style.setProperty("--line-of-head", lineOf(section));
  return chip;
}
