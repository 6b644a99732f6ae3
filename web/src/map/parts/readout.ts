import { element } from "../../dom/element";
import { count } from "../../look/figures";
import { showAlone, showAround } from "../../tokens/visible";
import type { Pool } from "../data/contract";
import type { CellValue } from "../engine/heat-track";

/** A head's name and what its map has under the pointer. */
export interface Reading {
  readonly name: string;
  readonly cell: CellValue | null;
}

export interface Place {
  readonly position: number;
  /** The pieces of the text it is in; empty before they are here. */
  readonly pieces: readonly string[];
}

const AROUND = 4;

/** What is under the pointer: which token looks at which, and how much. */
export class Readout {
  readonly element = element("div", { class: "readout" });
  readonly #query = element("p", { class: "readout-token" });
  readonly #key = element("p", { class: "readout-token" });
  readonly #values = element("p", { class: "readout-values", "data-test": "values" });

  constructor() {
    this.element.append(this.#query, this.#key, this.#values);
    this.clear();
  }

  clear(): void {
    this.element.classList.add("empty");
    this.#query.replaceChildren("Point at the map to read it; click a row to see where it looks.");
    this.#key.replaceChildren();
    this.#values.replaceChildren();
  }

  show(query: Place, key: Place, readings: readonly Reading[], pool: Pool): void {
    this.element.classList.remove("empty");
    this.#query.replaceChildren(element("span", { class: "role" }, "query"), ...context(query));
    this.#key.replaceChildren(element("span", { class: "role" }, "key"), ...context(key));
    this.#values.replaceChildren(
      ...readings.flatMap(({ name, cell }, index) => {
        const title = readings.length > 1 ? [element("span", { class: "role" }, `${name} `)] : [];
        const gap = index > 0 ? [" "] : [];
        return [...gap, element("span", { class: "reading" }, ...title, ...wordsFor(cell, pool))];
      }),
    );
  }
}

/** "1,204 … before token after …". */
function context({ position, pieces }: Place): (Node | string)[] {
  const before = pieces.slice(Math.max(0, position - AROUND), position);
  const after = pieces.slice(position + 1, position + 1 + AROUND);
  const piece = pieces[position];
  const place = element("span", { class: "position" }, count(position));
  if (piece === undefined) return [place];
  const token = element("bdi", { class: "quoted" }, showAlone(piece));
  // What stands before it is cut at its beginning, so that the token itself is seen.
  const near = element("bdi", {}, showAround(before));
  return [
    place,
    element("span", { class: "before" }, near),
    token,
    element("bdi", { class: "after" }, showAround(after)),
  ];
}

function wordsFor(cell: CellValue | null, pool: Pool): (Node | string)[] {
  if (!cell) return [element("span", { class: "role" }, "…")];
  const { value, tokens } = cell;
  if (Number.isNaN(value)) return [element("span", { class: "role" }, "may not look there")];
  const figures = element("b", {}, weightName(value));
  if (tokens === 1) return [figures];
  const size = `${pool === "effect" ? "strongest" : pool} of ${tokens} × ${tokens}`;
  return [figures, " ", element("span", { class: "role" }, size)];
}

/** Four digits, and the power of ten where there would be only zeros. */
export function weightName(value: number): string {
  if (value === 0) return "0";
  const figures = Math.abs(value) >= 0.001 ? value.toFixed(4) : value.toExponential(2);
  return figures.replaceAll("-", "−");
}
