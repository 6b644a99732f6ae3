import { element } from "../dom/element";
import { type Block, capitalized, nameOf } from "../look/blocks";
import { inFigures, measured } from "../look/figures";
import type { Place } from "../look/state";
import type { PageData } from "../page/contract";
import type { HeadMap } from "../page/maps";
import { columnOf, type GridLayout, layGrid } from "./grid-layout";
import { type Colouring, paintGrid } from "./grid-picture";
import { stepInGrid } from "./grid-steps";
import type { Tooltip } from "./tooltip";

/** Columns are numbered one by one where the numbers fit. */
const NUMBERED_FROM = 18;

/** All heads of the model: layers as rows, heads as columns, each a tiny map or a colour. */
export class Grid {
  readonly element = element("div", { class: "grid" });
  /** Touch screens have no scroll bars that would say so. */
  readonly hint = element("p", { class: "legend hint", hidden: true }, "Scroll to see all heads.");
  readonly #canvas = element("canvas", { "aria-hidden": "true" });
  readonly #sheet = element("div", {
    class: "grid-sheet",
    role: "grid",
    "aria-label": "Heads",
  });
  #cells = new Map<string, HTMLElement>();
  #layout: GridLayout | null = null;
  #chosen: HTMLElement | undefined;
  #colouring: Colouring | null = null;
  #dark = false;
  #place: Place = { block: 0, section: 0 };

  constructor(
    private readonly page: PageData,
    private readonly blocks: readonly Block[],
    private readonly maps: readonly (readonly HeadMap[])[],
    private readonly tooltip: Tooltip,
    private readonly choose: (place: Place) => void,
  ) {
    this.element.append(this.#sheet);
    this.#listen();
    new ResizeObserver(() => this.#lay()).observe(this.element);
  }

  colour(colouring: Colouring | null, dark: boolean): void {
    this.#colouring = colouring;
    this.#dark = dark;
    this.#paint();
  }

  show(place: Place): void {
    this.#place = place;
    const cell = this.#cells.get(keyOf(place));
    if (cell === this.#chosen) return;
    for (const [before, value, tab] of [
      [this.#chosen, "false", "-1"],
      [cell, "true", "0"],
    ] as const) {
      before?.setAttribute("aria-selected", value);
      before?.setAttribute("tabindex", tab);
    }
    this.#chosen = cell;
    this.#reveal();
  }

  /** Scroll the grid, and never the page, so that the chosen cell is seen. */
  #reveal(): void {
    const chosen = this.#chosen;
    const layout = this.#layout;
    const box = this.element;
    if (!chosen || !layout) return;
    const top = Number(chosen.dataset.top);
    const left = Number(chosen.dataset.left);
    const margin = layout.cell;
    if (top - margin < box.scrollTop + 22) box.scrollTop = top - margin - 22;
    else if (top + 2 * margin > box.scrollTop + box.clientHeight) {
      box.scrollTop = top + 2 * margin - box.clientHeight;
    }
    if (left - layout.labelWidth < box.scrollLeft) box.scrollLeft = left - layout.labelWidth;
    else if (left + margin > box.scrollLeft + box.clientWidth) {
      box.scrollLeft = left + margin + 4 - box.clientWidth;
    }
  }

  #lay(): void {
    this.#layOut();
    const { scrollWidth, clientWidth, scrollHeight, clientHeight } = this.element;
    this.hint.hidden = scrollWidth <= clientWidth + 1 && scrollHeight <= clientHeight + 1;
  }

  #layOut(): void {
    const coarse = matchMedia("(pointer: coarse)").matches;
    const layout = layGrid(this.blocks, this.element.clientWidth - 4, coarse ? 24 : 12);
    if (layout.cell === this.#layout?.cell) {
      this.#reveal();
      return;
    }
    this.#layout = layout;
    this.#build(layout);
    this.#paint();
    this.#chosen = undefined;
    this.show(this.#place);
  }

  #build(layout: GridLayout): void {
    this.#cells = new Map();
    this.#sheet.style.width = `${layout.width}px`;
    this.#sheet.style.height = `${layout.height}px`;
    this.#sheet.style.setProperty("--cell", `${layout.cell}px`);
    this.#sheet.style.setProperty("--label", `${layout.labelWidth}px`);
    this.#sheet.replaceChildren(this.#canvas, columnNames(layout));
    for (const row of layout.rows) {
      if (row.heading) {
        const heading = element(
          "div",
          { class: "grid-heading", "aria-hidden": "true" },
          row.heading,
        );
        heading.style.top = `${row.top - 22}px`;
        this.#sheet.append(heading);
      }
      const made = element("div", { class: "grid-row", role: "row" });
      made.style.top = `${row.top}px`;
      made.append(element("div", { class: "grid-label", role: "rowheader" }, row.block.label));
      for (let section = 0; section <= row.block.heads; section++) {
        const cell = this.#cell(layout, row.block, section);
        cell.dataset.top = String(row.top);
        this.#cells.set(keyOf({ block: row.block.index, section }), cell);
        made.append(cell);
      }
      this.#sheet.append(made);
    }
  }

  #cell(layout: GridLayout, block: Block, section: number): HTMLElement {
    const left = columnOf(layout, block, section);
    const cell = element("div", {
      class: "grid-cell",
      role: "gridcell",
      tabindex: -1,
      "aria-label": nameOf(block, section),
      "aria-selected": "false",
      "data-block": block.index,
      "data-section": section,
      "data-left": left,
    });
    cell.style.left = `${left}px`;
    return cell;
  }

  #paint(): void {
    if (this.#layout) {
      paintGrid(this.#canvas, this.#layout, this.maps, this.page, this.#colouring, this.#dark);
    }
  }

  #listen(): void {
    this.#sheet.addEventListener("click", (event) => {
      const place = placeAt(event);
      if (place) this.choose(place);
    });
    this.#sheet.addEventListener("pointermove", (event) => {
      const place = event.pointerType === "touch" ? null : placeAt(event);
      if (place) this.tooltip.show(this.#words(place), event.clientX, event.clientY);
      else this.tooltip.hide();
    });
    this.#sheet.addEventListener("pointerleave", () => this.tooltip.hide());
    this.#sheet.addEventListener("keydown", (event) => {
      const place = placeAt(event);
      if (!place || event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key === "Enter" || event.key === " ") this.choose(place);
      else {
        const next = stepInGrid(this.#layout?.rows ?? [], place, event.key);
        if (!next || event.shiftKey) return;
        this.#cells.get(keyOf(next))?.focus();
      }
      event.preventDefault();
      event.stopPropagation();
    });
  }

  #figure(value: number): string {
    return this.page.largest === null ? measured(value) : inFigures(value, { signed: true });
  }

  /** "Layer 18, head 6 · entropy 1.2 nats". */
  #words(place: Place): string {
    const block = this.blocks[place.block];
    if (!block) return "";
    const name = capitalized(nameOf(block, place.section));
    const colouring = this.#colouring;
    const value = colouring?.value(block, place.section);
    if (!colouring || value === null || value === undefined) return name;
    return `${name} · ${colouring.name.toLowerCase()} ${this.#figure(value)} ${colouring.unit}`.trimEnd();
  }
}

function columnNames(layout: GridLayout): HTMLElement {
  const names = element("div", { class: "grid-columns", "aria-hidden": "true" });
  const heads = layout.columns.length - 1;
  const every = layout.cell >= NUMBERED_FROM ? 1 : 4;
  for (const [column, left] of layout.columns.entries()) {
    if (column < heads && column % every !== 0) continue;
    const mean = column === heads;
    const name = element("span", { class: mean ? "mean" : "" }, layout.names[column] ?? "");
    name.style.left = `${left}px`;
    names.append(name);
  }
  return names;
}

function keyOf(place: Place): string {
  return `${place.block} ${place.section}`;
}

function placeAt(event: Event): Place | null {
  const cell = event.target instanceof HTMLElement ? event.target.closest(".grid-cell") : null;
  if (!(cell instanceof HTMLElement)) return null;
  return { block: Number(cell.dataset.block), section: Number(cell.dataset.section) };
}
