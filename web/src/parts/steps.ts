import { element } from "../dom/element";
import { weightInFigures } from "../look/figures";
import type { Explanation, ExplanationRow } from "../page/contract";
import { showAlone } from "../tokens/visible";
import { quoted } from "./quoted";

const LONGEST = 4;

/** How one output of attention comes about, step by step, in numbers. */
export function stepsSection(explanation: Explanation): HTMLElement {
  const section = element(
    "section",
    { class: "panel steps", "aria-label": "Step by step" },
    element("h2", {}, "Step by step"),
    element(
      "p",
      {},
      "How ",
      quoted(explanation.token),
      " looks at each token. Its query is ",
      element("span", { class: "vector" }, vector(explanation.query)),
      ".",
    ),
    element(
      "div",
      { class: "wide", tabindex: 0, role: "region", "aria-label": "Step by step, table" },
      table(explanation),
    ),
  );
  if (explanation.notes.length > 0) {
    const notes = explanation.notes.map((note) => element("li", {}, note));
    section.append(element("ul", { class: "notes" }, ...notes));
  }
  return section;
}

function table(explanation: Explanation): HTMLElement {
  const names = [
    "Token",
    "Key",
    "Score: query · key",
    `Scaled: × ${figure(explanation.scaled_by)}`,
    "Weight: softmax",
    "Value",
    "Weight × value",
  ];
  const sum = explanation.output ?? weightedSum(explanation.rows);
  const weights = explanation.rows.reduce((total, row) => total + row.weight, 0);
  return element(
    "table",
    {},
    element(
      "caption",
      { class: "unseen" },
      `How ${showAlone(explanation.token)} looks, step by step`,
    ),
    element(
      "thead",
      {},
      element("tr", {}, ...names.map((name) => element("th", { scope: "col" }, name))),
    ),
    element("tbody", {}, ...explanation.rows.map(rowOf)),
    element(
      "tfoot",
      {},
      element(
        "tr",
        {},
        element("th", { scope: "row", colspan: 4 }, "Sum"),
        element("td", {}, figure(weights)),
        element("td"),
        element("td", {}, sum ? vector(sum) : "–"),
      ),
    ),
  );
}

function rowOf(row: ExplanationRow): HTMLElement {
  const weighted = row.value?.map((number) => row.weight * number);
  const cells = [
    vector(row.key),
    figure(row.score),
    figure(row.scaled),
    weightInFigures(row.weight),
    row.value ? vector(row.value) : "–",
    weighted ? vector(weighted) : "–",
  ];
  return element(
    "tr",
    {},
    element("th", { scope: "row" }, quoted(row.token)),
    ...cells.map((cell) => element("td", {}, cell)),
  );
}

function weightedSum(rows: readonly ExplanationRow[]): number[] | null {
  const length = rows[0]?.value?.length ?? 0;
  if (length === 0 || rows.some((row) => row.value?.length !== length)) return null;
  return Array.from({ length }, (_, at) => {
    return rows.reduce((sum, row) => sum + row.weight * (row.value?.[at] ?? 0), 0);
  });
}

function vector(numbers: readonly number[]): string {
  const shown = numbers.slice(0, LONGEST).map(figure);
  if (numbers.length > LONGEST) shown.push("…");
  return `(${shown.join(", ")})`;
}

function figure(number: number): string {
  const rounded = number.toFixed(3);
  return (Number(rounded) === 0 ? "0.000" : rounded).replace("-", "−");
}
