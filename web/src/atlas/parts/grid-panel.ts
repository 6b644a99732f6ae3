import { gradient } from "../../colours/scale";
import { element } from "../../dom/element";
import { count } from "../../look/figures";
import type { Atlas } from "../data/contract";
import type { Spread } from "../data/spread";
import { figureOf, withUnit } from "../look/names";
import type { HeadGrid } from "./grid";

/** The grid with the choice of what colours it, a legend, and the labels. */
export class GridPanel {
  readonly element: HTMLElement;
  readonly #select: HTMLSelectElement;
  readonly #legend = element("div", { class: "legend" });
  readonly #chips = new Map<string, HTMLButtonElement>();

  constructor(
    atlas: Atlas,
    spreads: readonly Spread[],
    private readonly grid: HeadGrid,
    choose: { measure: (id: string) => void; label: (label: string) => void },
  ) {
    this.#select = element(
      "select",
      { id: "coloured-by" },
      ...spreads.map(({ measure }) => element("option", { value: measure.id }, measure.name)),
    );
    this.#select.addEventListener("change", () => choose.measure(this.#select.value));
    const chips = element("div", { class: "chips", role: "group", "aria-label": "Labels" });
    for (const { label, mark, heads } of atlas.labels) {
      if (heads.length === 0) continue;
      const chip = chipOf(mark, label, count(heads.length));
      chip.addEventListener("click", () => {
        choose.label(chip.getAttribute("aria-pressed") === "true" ? "" : label);
      });
      this.#chips.set(label, chip);
      chips.append(chip);
    }
    const none = element("p", { class: "small-print" }, "No head fits the rules of a label.");
    this.element = element(
      "section",
      { class: "panel atlas-heads", "aria-label": "Heads" },
      element(
        "div",
        { class: "panel-head" },
        element("h2", {}, "Heads"),
        element("label", { class: "choice", for: "coloured-by" }, "Colour by ", this.#select),
      ),
      this.#legend,
      element("div", { class: "grid-beside" }, grid.element, this.#chips.size > 0 ? chips : none),
    );
  }

  show(spread: Spread, label: string, dark: boolean): void {
    this.#select.value = spread.measure.id;
    this.grid.colour(spread, dark);
    this.grid.mark(label);
    for (const [name, chip] of this.#chips)
      chip.setAttribute("aria-pressed", String(name === label));
    this.#legend.replaceChildren(...legendOf(spread, dark));
  }
}

function chipOf(mark: string, label: string, number: string): HTMLButtonElement {
  return element(
    "button",
    { type: "button", class: "chip", "aria-pressed": "false" },
    element("span", { class: "mark", "aria-hidden": "true" }, mark),
    element("span", {}, label),
    element("span", { class: "number" }, number),
  );
}

function legendOf({ measure, low, high, sorted, values }: Spread, dark: boolean): HTMLElement[] {
  const bar = element("span", { class: "bar", "aria-hidden": "true" });
  bar.style.backgroundImage = gradient(dark);
  const made = [
    element(
      "div",
      { class: "scale" },
      element("span", {}, low === 0 ? "0" : figureOf(measure, low)),
      bar,
      element("span", {}, withUnit(measure, high)),
    ),
  ];
  const missing = values.length - sorted.length;
  const notes = [
    `${measure.name}: ${measure.about}.`,
    measure.scale === "log" ? "Colours follow the logarithm." : "",
    missing > 0 ? `Not measured in ${count(missing)} of the heads, which are framed.` : "",
  ];
  made.push(element("div", {}, notes.filter((note) => note !== "").join(" ")));
  return made;
}
