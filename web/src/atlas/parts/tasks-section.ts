import { element } from "../../dom/element";
import { count, scoreInFigures } from "../../look/figures";
import type { Atlas, Task } from "../data/contract";
import { headButton } from "./head-button";
import { baselinesOf, intervalInWords, scoreBar } from "./score-bar";

/** So many are shown at first. */
const SHOWN = 15;

type Order = (one: Task, two: Task) => number;

const ORDERS: Readonly<Record<string, Order>> = {
  "gain over the baseline": (one, two) => two.gain - one.gain,
  score: (one, two) => (two.heads[0]?.score ?? 0) - (one.heads[0]?.score ?? 0),
  "number of pairs": (one, two) => two.total - one.total,
  name: (one, two) => one.name.localeCompare(two.name),
};

/** Grammatical relations and coreference: the best head of each, beside what needs no model. */
export function tasksSection(atlas: Atlas, go: (head: number) => void): HTMLElement | null {
  const tasks = [...atlas.coreference, ...atlas.relations];
  if (tasks.length === 0) return null;
  const rows = new Map(tasks.map((task) => [task, rowOf(atlas, task, go)]));
  const body = element("tbody");
  const select = element(
    "select",
    { id: "tasks-order" },
    ...Object.keys(ORDERS).map((name) => element("option", { value: name }, name)),
  );
  const more = element("button", { type: "button", class: "plain more" });
  let shown = Math.min(SHOWN, tasks.length);
  const sort = (): void => {
    const sorted = [...tasks].sort(ORDERS[select.value]).slice(0, shown);
    body.replaceChildren(...sorted.map((task) => rows.get(task) as HTMLElement));
    more.hidden = shown === tasks.length;
    more.textContent = `${tasks.length - shown} more`;
  };
  more.addEventListener("click", () => {
    shown = tasks.length;
    sort();
  });
  select.addEventListener("change", sort);
  sort();
  return element(
    "section",
    { class: "panel", "aria-labelledby": "tasks-title" },
    element(
      "div",
      { class: "panel-head" },
      element("h2", { id: "tasks-title" }, "Heads on annotated text"),
      element("label", { class: "choice", for: "tasks-order" }, "Order by ", select),
    ),
    element(
      "p",
      { class: "small-print" },
      "How often the word that a head looks at most is the right one. The head was chosen on one part " +
        "of the text and is scored on another; the thin line is the 95 % interval of its score. Ticks are " +
        "baselines: for relations, always the word at one fixed offset, the one best for it. The gain is " +
        "from the best baseline to the lower end of the interval.",
    ),
    element("table", { class: "task-table" }, headOf(), body),
    more,
  );
}

function headOf(): HTMLElement {
  const names = ["Relation", "Head", "Score", "Baseline", "Pairs"];
  const cells = names.map((name) =>
    element("th", { scope: "col", class: name.toLowerCase() }, name),
  );
  return element("thead", {}, element("tr", {}, ...cells));
}

function rowOf(atlas: Atlas, task: Task, go: (head: number) => void): HTMLElement {
  const best = task.heads[0];
  const head = atlas.heads[best?.head ?? -1];
  const score = element("td", { class: "score" });
  if (best) {
    const words = element("span", { class: "interval" }, intervalInWords(best));
    score.append(element("b", {}, scoreInFigures(best.score)), " ", words, scoreBar(task, best));
  }
  return element(
    "tr",
    {},
    element(
      "th",
      { scope: "row" },
      element("b", {}, task.name),
      " ",
      element("span", {}, task.meaning),
    ),
    element("td", { class: "head" }, head && best ? headButton(head, () => go(best.head)) : "—"),
    score,
    element("td", { class: "baselines" }, ...baselinesOf(task)),
    element("td", { class: "pairs" }, count(task.total)),
  );
}
