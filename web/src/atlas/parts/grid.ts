import { coloursAt } from "../../colours/ink";
import { measureScale } from "../../colours/scale";
import type { Tooltip } from "../../parts/tooltip";
import type { Atlas } from "../data/contract";
import { type Spread, shareOf } from "../data/spread";
import { rowsOf } from "../look/grid-shape";
import { longName, withUnit } from "../look/names";
import { HeadSheet } from "./head-sheet";

/** Below this size there is no room for a mark. */
const MARKED_FROM = 13;

/** All heads, coloured by a measure, with marks for labels. */
export class HeadGrid {
  readonly element: HTMLElement;
  readonly #sheet: HeadSheet;
  readonly #marks: ReadonlyMap<string, string>;
  #spread: Spread | null = null;

  constructor(
    private readonly atlas: Atlas,
    tooltip: Tooltip,
    choose: (head: number, pointed: boolean) => void,
  ) {
    this.#marks = new Map(atlas.labels.map(({ label, mark }) => [label, mark]));
    const words = (head: number): string => this.#words(head);
    this.#sheet = new HeadSheet(rowsOf(atlas), tooltip, { words, choose });
    this.element = this.#sheet.element;
  }

  /** Whether there are so many layers that other things stand beside the grid, not below it. */
  get tall(): boolean {
    return this.#sheet.rows.length > 1.5 * this.#sheet.columns;
  }

  /** Lay the grid out; return how wide it is. */
  lay(width: number, height: number): number {
    const [cell, wide] = this.#sheet.lay(width, height);
    this.element.classList.toggle("unmarked", cell < MARKED_FROM);
    return wide;
  }

  colour(spread: Spread, dark: boolean): void {
    this.#spread = spread;
    const scale = measureScale(dark);
    for (const [number, cell] of this.#sheet.cells) {
      const value = spread.values[number] ?? null;
      cell.classList.toggle("unknown", value === null);
      const [colour, ink] = value === null ? ["", ""] : coloursAt(scale, shareOf(spread, value));
      cell.style.backgroundColor = colour;
      cell.style.color = ink;
    }
    this.#sheet.name();
  }

  /** Let the heads of a label stand out; of none, all heads do. */
  mark(label: string): void {
    for (const [number, cell] of this.#sheet.cells) {
      const kinds = this.atlas.heads[number]?.labels.map(({ kind }) => kind) ?? [];
      const kind = kinds.includes(label) ? label : kinds[0];
      cell.textContent = this.#marks.get(kind ?? "") ?? "";
      cell.classList.toggle("faded", label !== "" && !kinds.includes(label));
    }
  }

  show(head: number): void {
    this.#sheet.choose(head);
    this.#sheet.reveal(head);
  }

  /** "Layer 18, head 6 · entropy 1.20 nats · induction, sink". */
  #words(number: number): string {
    const head = this.atlas.heads[number];
    if (!head) return "";
    const value = this.#spread?.values[number] ?? null;
    const measure = this.#spread?.measure;
    const labels = head.labels.map(({ name }) => name).join(", ");
    const words = [longName(head)];
    if (measure)
      words.push(`${measure.name} ${value === null ? "not measured" : withUnit(measure, value)}`);
    if (labels) words.push(labels);
    return words.join(" · ");
  }
}
