import { Diverging } from "../colours/diverging";
import { gradient } from "../colours/scale";
import { element } from "../dom/element";
import { own } from "../dom/own";
import { type Block, capitalized, nameOf } from "../look/blocks";
import { inFigures, measured } from "../look/figures";
import { chosenPieces, type Scene } from "../look/scene";
import type { Place } from "../look/state";
import type { Ranked } from "../look/token-ranking";
import type { Measure, PageData } from "../page/contract";
import type { Grid } from "./grid";
import type { Colouring } from "./grid-picture";
import { mapColoursInWords } from "./map-legend";
import { quoted } from "./quoted";
import { Switch } from "./switch";

/** So many heads are listed by the strength of their looks. */
const LISTED = 5;

/** The grid with the choice of what colours it, and a legend. */
export class GridPanel {
  readonly element: HTMLElement;
  readonly #select: HTMLSelectElement;
  readonly #stacks: Switch<string>;
  readonly #legend = element("div", { class: "legend" });

  constructor(
    private readonly page: PageData,
    blocks: readonly Block[],
    private readonly grid: Grid,
    error: string,
    choose: (colouredBy: string) => void,
    private readonly goTo: (place: Place) => void,
  ) {
    this.#select = element(
      "select",
      { id: "coloured-by" },
      element("option", { value: "map" }, "small maps"),
      element("option", { value: "token" }, "chosen token"),
      ...page.measures.map((measure) => element("option", { value: measure.id }, measure.name)),
    );
    const stacks = [...new Set(blocks.map((block) => block.group))];
    const options = stacks.map((stack) => ({ value: stack, name: stack }));
    this.#stacks = new Switch("stack", "Stack", options, (stack) => {
      const block = blocks.find((each) => each.group === stack);
      if (block) goTo({ block: block.index, section: 0 });
    });
    this.#stacks.element.hidden = stacks.length < 2;
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
      this.#stacks.element,
      this.#legend,
      grid.hint,
      grid.element,
    );
    if (error) grid.element.before(element("p", { class: "error", role: "alert" }, error));
  }

  showStack(stack: string): void {
    this.#stacks.show(stack);
  }

  show(colouredBy: string, dark: boolean): void {
    const measure = this.page.measures.find((each) => each.id === colouredBy) ?? null;
    this.#select.value = measure ? measure.id : "map";
    const value: Colouring["value"] = (block, section) =>
      measure && own(block.measures, measure.id)?.[section];
    this.grid.colour(measure && { ...measure, value }, dark);
    this.#legend.replaceChildren(...(measure ? legendOf(this.page, measure, dark) : [this.#maps]));
  }

  /** Colour heads by their strongest look from the token in question, or at it, and list the first. */
  showRanked(scene: Scene, ranked: readonly Ranked[], dark: boolean): void {
    this.#select.value = "token";
    const found = new Map(ranked.map((one) => [`${one.place.block} ${one.place.section}`, one]));
    const name = scene.edges.signed ? "largest effect" : "largest weight";
    const high = scene.edges.signed ? Math.abs(ranked[0]?.weight ?? 0) : 1;
    const value: Colouring["value"] = (block, section) =>
      found.get(`${block.index} ${section}`)?.weight;
    this.grid.colour({ name, unit: "", high, value }, dark);
    if (scene.token === null) {
      this.#legend.replaceChildren(
        element("p", {}, "Choose a token to see which heads look most."),
      );
      return;
    }
    const token = quoted(chosenPieces(scene)[scene.token]);
    const aside = scene.edges.signed ? "" : "; sinks, neighbours and punctuation don't count";
    const words = element("p", {}, `Strongest looks ${scene.direction === "to" ? "of" : "at"} `);
    words.append(token, `${aside}.`);
    const rows = ranked.filter((one) => one.weight !== 0).slice(0, LISTED);
    const list = element("ol", { class: "ranking" }, ...rows.map((one) => this.#row(scene, one)));
    this.#legend.replaceChildren(words, list);
  }

  get #maps(): HTMLElement {
    return element("p", {}, `Rows are layers, columns are heads. ${mapColoursInWords(this.page)}`);
  }

  #row(scene: Scene, { block, place, text, other, weight }: Ranked): HTMLElement {
    const button = element("button", { type: "button" });
    button.append(
      `${capitalized(nameOf(block, place.section))} `,
      quoted(text.pieces[other]),
      ` ${inFigures(weight, scene.edges)}`,
    );
    button.addEventListener("click", () => this.goTo(place));
    return element("li", {}, button);
  }
}

function legendOf(page: PageData, measure: Measure, dark: boolean): HTMLElement[] {
  const bar = element("span", { class: "bar", "aria-hidden": "true" });
  const signed = page.largest !== null;
  const stops = new Diverging(dark ? page.diverging.dark : page.diverging.light, 1);
  bar.style.backgroundImage = signed ? stops.gradient(true) : gradient(dark);
  const high = signed ? inFigures(measure.high, { signed }) : measured(measure.high);
  const low = signed ? inFigures(-measure.high, { signed }) : "0";
  const ends = [low, `${high} ${measure.unit}`.trimEnd()].map((end) => element("span", {}, end));
  ends.splice(1, 0, bar);
  return [
    element("div", { class: "scale" }, ...ends),
    element("p", {}, `${capitalized(measure.name)}: ${measure.about}`),
  ];
}
