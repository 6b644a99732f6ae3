import { drawn, element } from "../../dom/element";
import { count } from "../../look/figures";
import { allEqual, rankOf, type Spread, shareOf } from "../data/spread";
import { figureOf, withUnit } from "../look/names";

interface Line {
  readonly spread: Spread;
  readonly row: HTMLElement;
  readonly figure: HTMLElement;
  readonly rank: HTMLElement;
  readonly pointer: HTMLElement;
}

/** Each measure of a head, among those of all heads. */
export class MeasureList {
  readonly element: HTMLElement;
  readonly #lines: readonly Line[];

  constructor(
    spreads: readonly Spread[],
    private readonly choose: (measure: string) => void,
  ) {
    this.#lines = spreads.map((spread) => this.#line(spread));
    this.element = element(
      "table",
      { class: "measures" },
      element("caption", { class: "unseen" }, "Measures of this head"),
      element(
        "thead",
        {},
        element(
          "tr",
          {},
          element("th", { scope: "col" }, "Measure"),
          element("th", { scope: "col", class: "number" }, "Value"),
          element("th", { scope: "col", class: "strip-column" }, "Among all heads"),
          element("th", { scope: "col", class: "number" }, "Rank"),
        ),
      ),
      element("tbody", {}, ...this.#lines.map(({ row }) => row)),
    );
  }

  show(head: number, coloured: string): void {
    for (const { spread, row, figure, rank, pointer } of this.#lines) {
      const value = spread.values[head] ?? null;
      row.classList.toggle("unknown", value === null);
      row.classList.toggle("coloured", spread.measure.id === coloured);
      pointer.hidden = value === null;
      figure.textContent = value === null ? "—" : figureOf(spread.measure, value);
      figure.title = value === null ? "not measured" : withUnit(spread.measure, value);
      rank.textContent = value === null ? "" : rankText(spread, value);
      if (value !== null) pointer.style.left = `${(100 * shareOf(spread, value)).toFixed(2)}%`;
    }
  }

  #line(spread: Spread): Line {
    const figure = element("td", { class: "number" });
    const rank = element("td", { class: "number rank" });
    const pointer = element("span", { class: "strip-pointer" });
    const name = element(
      "button",
      { type: "button", class: "measure-name", title: `${spread.measure.about}. Colour by it` },
      spread.measure.name,
    );
    name.addEventListener("click", () => this.choose(spread.measure.id));
    const row = element(
      "tr",
      {},
      element("th", { scope: "row" }, name),
      figure,
      element(
        "td",
        { class: "strip-column", "aria-hidden": "true" },
        element("span", { class: "strip" }, stripOf(spread), pointer),
      ),
      rank,
    );
    return { spread, row, figure, rank, pointer };
  }
}

function rankText(spread: Spread, value: number): string {
  if (allEqual(spread)) return "all equal";
  return `${count(rankOf(spread, value))} of ${count(spread.sorted.length)}`;
}

/** A short line for each head, where its value is. */
function stripOf(spread: Spread): SVGSVGElement {
  const places = new Set(spread.sorted.map((value) => (200 * shareOf(spread, value)).toFixed(0)));
  const path = Array.from(places, (place) => `M${place} 0V10`).join("");
  return drawn(
    "svg",
    { viewBox: "0 0 200 10", preserveAspectRatio: "none" },
    drawn("path", { d: path, "vector-effect": "non-scaling-stroke" }),
  );
}
