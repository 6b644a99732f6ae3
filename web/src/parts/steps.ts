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
      " attends to each token.",
      ...queryOf(explanation),
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

function queryOf(explanation: Explanation): (Node | string)[] {
  if (explanation.query === null) return [];
  const query = element("span", { class: "vector" }, vector(explanation.query));
  return [" Its query is ", query, "."];
}

interface Column {
  readonly name: string;
  readonly cell: (row: ExplanationRow) => string;
}

/** The columns whose numbers are known. */
function columnsOf(explanation: Explanation): { before: Column[]; after: Column[] } {
  const { query, scaled_by: scale, rows } = explanation;
  const before =
    query === null || scale === null
      ? []
      : [
          { name: "Key", cell: (row: ExplanationRow) => vector(row.key ?? []) },
          { name: "Score: query · key", cell: (row: ExplanationRow) => figure(row.score) },
          { name: `Scaled: × ${figure(scale)}`, cell: (row: ExplanationRow) => figure(row.scaled) },
        ];
  const after = rows.some((row) => row.value !== null)
    ? [
        { name: "Value", cell: (row: ExplanationRow) => (row.value ? vector(row.value) : "–") },
        {
          name: "Weight × value",
          cell: (row: ExplanationRow) =>
            row.value ? vector(row.value.map((number) => row.weight * number)) : "–",
        },
      ]
    : [];
  return { before, after };
}

function table(explanation: Explanation): HTMLElement {
  const { before, after } = columnsOf(explanation);
  const weight = {
    name: "Weight: softmax",
    cell: (row: ExplanationRow) => weightInFigures(row.weight),
  };
  const columns = [...before, weight, ...after];
  const sum = explanation.output ?? weightedSum(explanation.rows);
  const weights = explanation.rows.reduce((total, row) => total + row.weight, 0);
  const sums = [figure(weights), ...(after.length > 0 ? ["", sum ? vector(sum) : "–"] : [])];
  return element(
    "table",
    {},
    element(
      "caption",
      { class: "unseen" },
      `How ${showAlone(explanation.token)} attends, step by step`,
    ),
    element(
      "thead",
      {},
      element(
        "tr",
        {},
        ...["Token", ...columns.map(({ name }) => name)].map((name) =>
          element("th", { scope: "col" }, name),
        ),
      ),
    ),
    element("tbody", {}, ...explanation.rows.map((row) => rowOf(row, columns))),
    element(
      "tfoot",
      {},
      element(
        "tr",
        {},
        element("th", { scope: "row", colspan: 1 + before.length }, "Sum"),
        ...sums.map((text) => element("td", {}, text)),
      ),
    ),
  );
}

function rowOf(row: ExplanationRow, columns: readonly Column[]): HTMLElement {
  return element(
    "tr",
    {},
    element("th", { scope: "row" }, quoted(row.token)),
    ...columns.map(({ cell }) => element("td", {}, cell(row))),
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

function figure(number: number | null): string {
  if (number === null) return "–";
  const rounded = number.toFixed(3);
  return (Number(rounded) === 0 ? "0.000" : rounded).replace("-", "−");
}
