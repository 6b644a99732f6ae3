import { gradient } from "../colours/scale";
import { element } from "../dom/element";
import { measured } from "../look/figures";
import type { Measure, PageData } from "../page/contract";
import type { Grid } from "./grid";

/** The grid with the choice of what colours it, and a legend. */
export class GridPanel {
  readonly element: HTMLElement;
  readonly #select: HTMLSelectElement;
  readonly #legend = element("div", { class: "legend" });

  constructor(
    private readonly page: PageData,
    private readonly grid: Grid,
    error: string,
    choose: (colouredBy: string) => void,
  ) {
    this.#select = element(
      "select",
      { id: "coloured-by" },
      element("option", { value: "map" }, "small maps"),
      ...page.measures.map((measure) => element("option", { value: measure.id }, measure.name)),
    );
    this.#select.addEventListener("change", () => choose(this.#select.value));
    this.element = element(
      "section",
      { class: "panel heads", "aria-label": "Heads" },
      element(
        "div",
        { class: "panel-head" },
        element("h2", {}, "Heads"),
        element("label", { class: "choice", for: "coloured-by" }, "Show", " ", this.#select),
      ),
      this.#legend,
      grid.element,
    );
    if (error) grid.element.before(element("p", { class: "error", role: "alert" }, error));
  }

  show(colouredBy: string, dark: boolean): void {
    const measure = this.page.measures.find((each) => each.id === colouredBy) ?? null;
    this.#select.value = measure ? measure.id : "map";
    this.grid.colour(measure, dark);
    this.#legend.replaceChildren(...(measure ? legendOf(measure, dark) : [MAPS()]));
  }
}

const MAPS = (): HTMLElement => element("p", {}, "Rows are layers, columns are heads.");

function legendOf(measure: Measure, dark: boolean): HTMLElement[] {
  const bar = element("span", { class: "bar", "aria-hidden": "true" });
  bar.style.backgroundImage = gradient(dark);
  const high = `${measured(measure.high)} ${measure.unit}`.trimEnd();
  return [
    element("div", { class: "scale" }, element("span", {}, "0"), bar, element("span", {}, high)),
    element("p", {}, `${measure.name}: ${measure.about}`),
  ];
}
