import type { GridRow } from "../../atlas/look/grid-shape";
import { HeadSheet } from "../../atlas/parts/head-sheet";
import { Diverging, mostOf } from "../../colours/diverging";
import type { Tooltip } from "../../parts/tooltip";
import type { Attribution } from "../data/contract";
import type { HeadPlace } from "../data/scores";
import { figureOf } from "../look/words";

const LARGEST_CELL = 26;

/** Layers as rows, heads as columns, coloured by what passes through them from a passage. */
export class HeadsGrid {
  readonly element: HTMLElement;
  readonly #sheet: HeadSheet;
  readonly #columns: number;
  #effects: readonly (readonly number[])[] = [];

  constructor(
    private readonly found: Attribution,
    tooltip: Tooltip,
    choose: (place: HeadPlace) => void,
  ) {
    const layers = found.by_head?.[0] ?? [];
    this.#columns = Math.max(0, ...layers.map((heads) => heads.length));
    const rows: GridRow[] = layers.map((heads, layer) => {
      return { layer, heads: heads.map((_, head) => layer * this.#columns + head) };
    });
    this.#sheet = new HeadSheet(rows, tooltip, {
      words: (number) => this.#words(number),
      choose: (number) => choose(this.#place(number)),
    });
    this.element = this.#sheet.element;
  }

  lay(width: number, height: number): void {
    this.#sheet.lay(width, height, LARGEST_CELL);
  }

  /** Colour the heads of a passage; dots are on those that can be looked into. */
  show(passage: number, place: HeadPlace, stops: readonly string[]): void {
    this.#effects = this.found.by_head?.[passage] ?? [];
    const scale = new Diverging(stops, mostOf(this.#effects.flat()));
    const looks = this.found.looks?.[passage] ?? [];
    const dotted = new Set(looks.map(({ layer, head }) => layer * this.#columns + head));
    for (const [number, cell] of this.#sheet.cells) {
      scale.paint(cell, this.#effectOf(number));
      cell.textContent = dotted.has(number) ? "·" : "";
    }
    this.#sheet.name();
    this.#sheet.choose(place.layer * this.#columns + place.head);
  }

  #place(number: number): HeadPlace {
    return { layer: Math.floor(number / this.#columns), head: number % this.#columns };
  }

  #effectOf(number: number): number {
    const { layer, head } = this.#place(number);
    return this.#effects[layer]?.[head] ?? 0;
  }

  #words(number: number): string {
    const { layer, head } = this.#place(number);
    return `Layer ${layer}, head ${head} · ${figureOf(this.found, this.#effectOf(number))}`;
  }
}
