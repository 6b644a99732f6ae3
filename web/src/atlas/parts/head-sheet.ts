import { element } from "../../dom/element";
import type { Tooltip } from "../../parts/tooltip";
import { cellSize, GAP, type GridRow, stepFrom } from "../look/grid-shape";

/** Below this size there is no room for each number of a column. */
const NUMBERED_FROM = 20;
const NAMES = 36;

export interface HeadSheetEvents {
  /** What is said of a head, by its number. */
  readonly words: (head: number) => string;
  readonly choose: (head: number, pointed: boolean) => void;
}

/** All heads: layers as rows, heads as columns. Others colour its cells. */
export class HeadSheet {
  readonly element = element("div", { class: "grid" });
  readonly cells = new Map<number, HTMLElement>();
  readonly columns: number;
  readonly #sheet = element("div", { class: "atlas-sheet", role: "grid", "aria-label": "Heads" });
  readonly #names: HTMLElement[] = [];

  constructor(
    readonly rows: readonly GridRow[],
    private readonly tooltip: Tooltip,
    private readonly events: HeadSheetEvents,
  ) {
    this.columns = Math.max(0, ...rows.map(({ heads }) => heads.length));
    this.element.append(this.#sheet);
    this.#build();
    this.#listen();
  }

  /** Lay the sheet out with cells of at most a size; return their size and the sheet's width. */
  lay(width: number, height: number, most = Number.POSITIVE_INFINITY): [number, number] {
    const coarse = matchMedia("(pointer: coarse)").matches;
    const room = { width: width - NAMES, height, coarse };
    const cell = Math.min(most, cellSize(this.rows.length, this.columns, room));
    this.#sheet.style.setProperty("--cell", `${cell}px`);
    const every = cell >= NUMBERED_FROM ? 1 : 4;
    for (const [column, name] of this.#names.entries()) {
      name.textContent = column % every === 0 ? String(column) : "";
    }
    return [cell, NAMES + this.columns * (cell + GAP)];
  }

  choose(head: number): void {
    for (const [number, cell] of this.cells) {
      cell.setAttribute("aria-selected", String(number === head));
      cell.tabIndex = number === head ? 0 : -1;
    }
  }

  /** Scroll the grid, and never the page, so that a cell is seen. */
  reveal(head: number): void {
    const cell = this.cells.get(head);
    if (!cell) return;
    const box = this.element.getBoundingClientRect();
    const { left, top, right, bottom } = cell.getBoundingClientRect();
    const margin = right - left;
    if (top - margin < box.top + 20) this.element.scrollTop += top - margin - box.top - 20;
    else if (bottom + margin > box.bottom) this.element.scrollTop += bottom + margin - box.bottom;
    if (left - NAMES < box.left) this.element.scrollLeft += left - NAMES - box.left;
    else if (right + margin > box.right) this.element.scrollLeft += right + margin - box.right;
  }

  /** Write what is said of each head where screen readers find it. */
  name(): void {
    for (const [number, cell] of this.cells) {
      cell.setAttribute("aria-label", this.events.words(number));
    }
  }

  #build(): void {
    const top = element("div", { class: "atlas-columns", "aria-hidden": "true" });
    top.append(element("span", { class: "atlas-row-name" }));
    for (let column = 0; column < this.columns; column++) {
      const name = element("span");
      this.#names.push(name);
      top.append(name);
    }
    this.#sheet.append(top);
    for (const { layer, heads } of this.rows) {
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
    this.cells.set(number, cell);
    return cell;
  }

  #listen(): void {
    this.#sheet.addEventListener("click", (event) => {
      const head = headAt(event);
      if (head !== null) this.events.choose(head, true);
    });
    this.#sheet.addEventListener("pointermove", (event) => {
      const head = event.pointerType === "touch" ? null : headAt(event);
      if (head === null) this.tooltip.hide();
      else this.tooltip.show(this.events.words(head), event.clientX, event.clientY);
    });
    this.#sheet.addEventListener("pointerleave", () => this.tooltip.hide());
    this.#sheet.addEventListener("keydown", (event) => {
      const head = headAt(event);
      if (head === null || event.ctrlKey || event.metaKey || event.altKey) return;
      const next = stepFrom(this.rows, head, event.key);
      if (next === null) return;
      event.preventDefault();
      this.events.choose(next, false);
      this.cells.get(next)?.focus({ preventScroll: true });
    });
  }
}

function headAt(event: Event): number | null {
  const cell = event.target instanceof HTMLElement ? event.target.closest(".atlas-cell") : null;
  return cell instanceof HTMLElement ? Number(cell.dataset.head) : null;
}
