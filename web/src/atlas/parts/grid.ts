import { coloursAt } from "../../colours/ink";
import { measureScale } from "../../colours/scale";
import { element } from "../../dom/element";
import type { Tooltip } from "../../parts/tooltip";
import type { Atlas } from "../data/contract";
import { type Spread, shareOf } from "../data/spread";
import { cellSize, GAP, type GridRow, rowsOf, stepFrom } from "../look/grid-shape";
import { longName, withUnit } from "../look/names";

/** Below this size there is no room for a mark, or for each number of a column. */
const MARKED_FROM = 13;
const NUMBERED_FROM = 20;
const NAMES = 36;

/** All heads: layers as rows, heads as columns, coloured by a measure, with marks for labels. */
export class HeadGrid {
  readonly element = element("div", { class: "grid" });
  readonly #sheet = element("div", { class: "atlas-sheet", role: "grid", "aria-label": "Heads" });
  readonly #rows: readonly GridRow[];
  readonly #columns: number;
  readonly #marks: ReadonlyMap<string, string>;
  readonly #cells = new Map<number, HTMLElement>();
  readonly #names: HTMLElement[] = [];
  #spread: Spread | null = null;
  #chosen = -1;

  constructor(
    private readonly atlas: Atlas,
    private readonly tooltip: Tooltip,
    private readonly choose: (head: number, pointed: boolean) => void,
  ) {
    this.#rows = rowsOf(atlas);
    this.#columns = this.#rows[0]?.heads.length ?? 0;
    this.#marks = new Map(atlas.labels.map(({ label, mark }) => [label, mark]));
    this.element.append(this.#sheet);
    this.#build();
    this.#listen();
  }

  /** Whether there are so many layers that other things stand beside the grid, not below it. */
  get tall(): boolean {
    return this.#rows.length > 1.5 * this.#columns;
  }

  /** Lay the grid out; return how wide it is. */
  lay(width: number, height: number): number {
    const coarse = matchMedia("(pointer: coarse)").matches;
    const room = { width: width - NAMES, height, coarse };
    const cell = cellSize(this.#rows.length, this.#columns, room);
    this.#sheet.style.setProperty("--cell", `${cell}px`);
    this.#sheet.classList.toggle("unmarked", cell < MARKED_FROM);
    const every = cell >= NUMBERED_FROM ? 1 : 4;
    for (const [column, name] of this.#names.entries()) {
      name.textContent = column % every === 0 ? String(column) : "";
    }
    return NAMES + this.#columns * (cell + GAP);
  }

  colour(spread: Spread, dark: boolean): void {
    this.#spread = spread;
    const scale = measureScale(dark);
    for (const [number, cell] of this.#cells) {
      const value = spread.values[number] ?? null;
      cell.classList.toggle("unknown", value === null);
      const [colour, ink] = value === null ? ["", ""] : coloursAt(scale, shareOf(spread, value));
      cell.style.backgroundColor = colour;
      cell.style.color = ink;
      cell.setAttribute("aria-label", this.#words(number));
    }
  }

  /** Let the heads of a label stand out; of none, all heads do. */
  mark(label: string): void {
    for (const [number, cell] of this.#cells) {
      const kinds = this.atlas.heads[number]?.labels.map(({ kind }) => kind) ?? [];
      const kind = kinds.includes(label) ? label : kinds[0];
      cell.textContent = this.#marks.get(kind ?? "") ?? "";
      cell.classList.toggle("faded", label !== "" && !kinds.includes(label));
    }
  }

  show(head: number): void {
    const before = this.#cells.get(this.#chosen);
    before?.setAttribute("aria-selected", "false");
    before?.setAttribute("tabindex", "-1");
    const cell = this.#cells.get(head);
    cell?.setAttribute("aria-selected", "true");
    cell?.setAttribute("tabindex", "0");
    this.#chosen = head;
    this.#reveal();
  }

  /** Scroll the grid, and never the page, so that the chosen cell is seen. */
  #reveal(): void {
    const cell = this.#cells.get(this.#chosen);
    if (!cell) return;
    const box = this.element.getBoundingClientRect();
    const { left, top, right, bottom } = cell.getBoundingClientRect();
    const margin = right - left;
    if (top - margin < box.top + 20) this.element.scrollTop += top - margin - box.top - 20;
    else if (bottom + margin > box.bottom) this.element.scrollTop += bottom + margin - box.bottom;
    if (left - NAMES < box.left) this.element.scrollLeft += left - NAMES - box.left;
    else if (right + margin > box.right) this.element.scrollLeft += right + margin - box.right;
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
        row.append(number === undefined ? element("span", { class: "gap" }) : this.#cell(number));
      }
      this.#sheet.append(row);
    }
  }

  #cell(number: number): HTMLElement {
    const cell = element("div", {
      class: "atlas-cell",
      role: "gridcell",
      tabindex: -1,
      "aria-selected": "false",
      "data-head": number,
    });
    this.#cells.set(number, cell);
    return cell;
  }

  #listen(): void {
    this.#sheet.addEventListener("click", (event) => {
      const head = headAt(event);
      if (head !== null) this.choose(head, true);
    });
    this.#sheet.addEventListener("pointermove", (event) => {
      const head = event.pointerType === "touch" ? null : headAt(event);
      if (head === null) this.tooltip.hide();
      else this.tooltip.show(this.#words(head), event.clientX, event.clientY);
    });
    this.#sheet.addEventListener("pointerleave", () => this.tooltip.hide());
    this.#sheet.addEventListener("keydown", (event) => {
      const head = headAt(event);
      if (head === null || event.ctrlKey || event.metaKey || event.altKey) return;
      const next = stepFrom(this.#rows, head, event.key);
      if (next === null) return;
      event.preventDefault();
      this.choose(next, false);
      this.#cells.get(next)?.focus({ preventScroll: true });
    });
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

function headAt(event: Event): number | null {
  const cell = event.target instanceof HTMLElement ? event.target.closest(".atlas-cell") : null;
  return cell instanceof HTMLElement ? Number(cell.dataset.head) : null;
}
