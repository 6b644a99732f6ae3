import { cellSize, GAP, type GridRow, stepFrom } from "../../atlas/look/grid-shape";
import { Diverging, mostOf } from "../../colours/diverging";
import { element } from "../../dom/element";
import type { Tooltip } from "../../parts/tooltip";
import type { Attribution } from "../data/contract";
import type { HeadPlace } from "../data/scores";
import { figureOf } from "../look/words";

const NAMES = 36;
const NUMBERED_FROM = 20;

/** Layers as rows, heads as columns, coloured by what passes through them from a passage. */
export class HeadsGrid {
  readonly element = element("div", { class: "grid" });
  readonly #sheet = element("div", { class: "atlas-sheet", role: "grid", "aria-label": "Heads" });
  readonly #cells: HTMLElement[] = [];
  readonly #names: HTMLElement[] = [];
  readonly #rows: readonly GridRow[];
  readonly #columns: number;
  #effects: readonly (readonly number[])[] = [];
  #chosen = -1;

  constructor(
    private readonly found: Attribution,
    private readonly tooltip: Tooltip,
    private readonly choose: (place: HeadPlace) => void,
  ) {
    const layers = found.by_head?.[0] ?? [];
    this.#columns = Math.max(0, ...layers.map((heads) => heads.length));
    this.#rows = layers.map((heads, layer) => {
      return { layer, heads: heads.map((_, head) => layer * this.#columns + head) };
    });
    this.element.append(this.#sheet);
    this.#build();
    this.#listen();
  }

  lay(width: number, height: number): void {
    const coarse = matchMedia("(pointer: coarse)").matches;
    const room = { width: width - NAMES, height, coarse };
    const cell = Math.min(26, cellSize(this.#rows.length, this.#columns, room));
    this.#sheet.style.setProperty("--cell", `${cell}px`);
    this.#sheet.style.setProperty("--gap", `${GAP}px`);
    const every = cell >= NUMBERED_FROM ? 1 : 4;
    for (const [column, name] of this.#names.entries()) {
      name.textContent = column % every === 0 ? String(column) : "";
    }
  }

  /** Colour the heads of a passage; `rows` are those that can be looked into. */
  show(passage: number, place: HeadPlace, stops: readonly string[]): void {
    this.#effects = this.found.by_head?.[passage] ?? [];
    const scale = new Diverging(stops, mostOf(this.#effects.flat()));
    const looks = this.found.looks?.[passage] ?? [];
    const rows = new Set(looks.map(({ layer, head }) => layer * this.#columns + head));
    this.#chosen = place.layer * this.#columns + place.head;
    for (const [number, cell] of this.#cells.entries()) {
      scale.paint(cell, this.#effectOf(number));
      cell.textContent = rows.has(number) ? "·" : "";
      cell.setAttribute("aria-selected", String(number === this.#chosen));
      cell.setAttribute("aria-label", this.#words(number));
      cell.tabIndex = number === this.#chosen ? 0 : -1;
    }
  }

  #build(): void {
    const top = element("div", { class: "atlas-columns", "aria-hidden": "true" });
    top.append(element("span", { class: "atlas-row-name" }));
    for (let column = 0; column < this.#columns; column++) {
      const name = element("span");
      this.#names.push(name);
      top.append(name);
    }
    this.#sheet.append(top);
    for (const { layer, heads } of this.#rows) {
      const name = element("span", { class: "atlas-row-name", role: "rowheader" }, String(layer));
      const row = element("div", { class: "atlas-row", role: "row" }, name);
      for (const number of heads) {
        const cell = element("div", { class: "atlas-cell", role: "gridcell" });
        cell.dataset.head = String(number);
        this.#cells.push(cell);
        row.append(cell);
      }
      this.#sheet.append(row);
    }
  }

  #listen(): void {
    this.#sheet.addEventListener("click", (event) => {
      const number = cellAt(event);
      if (number !== null) this.choose(this.#place(number));
    });
    this.#sheet.addEventListener("pointermove", (event) => {
      const number = event.pointerType === "touch" ? null : cellAt(event);
      if (number === null) this.tooltip.hide();
      else this.tooltip.show(this.#words(number), event.clientX, event.clientY);
    });
    this.#sheet.addEventListener("pointerleave", () => this.tooltip.hide());
    this.#sheet.addEventListener("keydown", (event) => {
      const number = cellAt(event);
      if (number === null || event.ctrlKey || event.metaKey || event.altKey) return;
      const next = stepFrom(this.#rows, number, event.key);
      if (next === null) return;
      event.preventDefault();
      this.choose(this.#place(next));
      this.#cells[next]?.focus({ preventScroll: true });
    });
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

function cellAt(event: Event): number | null {
  const cell = event.target instanceof HTMLElement ? event.target.closest(".atlas-cell") : null;
  return cell instanceof HTMLElement ? Number(cell.dataset.head) : null;
}
