import { element } from "../../dom/element";
import { count, scoreInFigures } from "../../look/figures";
import type { Atlas, Score, Task } from "../data/contract";
import type { Spread } from "../data/spread";
import { longName } from "../look/names";
import { meansOf } from "./chart";
import { distanceChart } from "./distance-chart";
import { examplesOf } from "./examples";
import { MeasureList } from "./measure-list";
import { offsetsChart } from "./offsets-chart";
import { baselinesOf, intervalInWords, scoreBar } from "./score-bar";

/** All about one head. */
export class Card {
  readonly element: HTMLElement;
  readonly #name = element("h2", { tabindex: -1 });
  readonly #module = element("p", { class: "module" });
  /** Read out by screen readers when another head is chosen. */
  readonly #status = element("div", { class: "unseen", role: "status" });
  readonly #labels = element("ul", { class: "card-labels" });
  readonly #charts = element("div", { class: "charts" });
  readonly #parts = element("div");
  readonly #measures: MeasureList;
  readonly #offsets: readonly number[];
  readonly #distances: readonly number[];
  readonly #marks: ReadonlyMap<string, string>;

  constructor(
    private readonly atlas: Atlas,
    spreads: readonly Spread[],
    commands: { measure: (measure: string) => void; back: () => void },
  ) {
    this.#measures = new MeasureList(spreads, commands.measure);
    const back = element("button", { type: "button", class: "plain back" }, "↑ All heads");
    back.addEventListener("click", commands.back);
    this.#offsets = meansOf(atlas.heads.map((head) => head.offsets));
    this.#distances = meansOf(atlas.heads.map((head) => head.distances));
    this.#marks = new Map(atlas.labels.map(({ label, mark }) => [label, mark]));
    this.element = element(
      "section",
      { class: "panel card", "aria-label": "The chosen head" },
      element("div", { class: "card-head" }, this.#name, back, this.#module),
      this.#status,
      this.#labels,
      element("div", { class: "card-columns" }, this.#measures.element, this.#charts),
      this.#parts,
    );
  }

  show(number: number, coloured: string): void {
    const head = this.atlas.heads[number];
    if (!head) return;
    this.#measures.show(number, coloured);
    if (this.element.dataset.head === String(number)) return;
    this.element.dataset.head = String(number);
    this.#name.textContent = longName(head);
    const rows = head.rows === null ? "" : `means over ${count(head.rows)} rows`;
    this.#module.textContent = [head.module, rows].filter((words) => words !== "").join(" · ");
    this.#status.textContent = [longName(head), ...head.labels.map(({ name }) => name)].join(", ");
    const none = element("li", { class: "none" }, "Fits the rules of no label.");
    const labels = head.labels.map(({ name, kind, evidence }) => {
      const mark = element(
        "span",
        { class: "mark", "aria-hidden": "true" },
        this.#marks.get(kind) ?? "",
      );
      return element("li", {}, mark, element("b", {}, name), element("span", {}, evidence));
    });
    this.#labels.replaceChildren(...(labels.length > 0 ? labels : [none]));
    this.#charts.replaceChildren(...this.#chartsOf(number));
    const examples = this.atlas.examples.filter((example) => example.head === number);
    this.#parts.replaceChildren(...this.#tasksOf(number));
    if (examples.length > 0) this.#parts.append(examplesOf(examples));
  }

  /** Go to the card, where it is out of sight. */
  reveal(): void {
    const { top, bottom } = this.#name.getBoundingClientRect();
    if (top >= 0 && bottom <= innerHeight) return;
    this.element.scrollIntoView({ block: "start" });
  }

  focus(): void {
    this.#name.focus({ preventScroll: true });
  }

  #chartsOf(number: number): HTMLElement[] {
    const { offsets, distances } = this.atlas.heads[number] ?? {};
    const made: HTMLElement[] = [];
    if (offsets) made.push(offsetsChart(this.atlas.offsets, offsets, this.#offsets));
    if (distances) made.push(distanceChart(this.atlas.distances, distances, this.#distances));
    if (made.length > 0) {
      const words = "Shares of attention. Grey lines: the mean over all heads.";
      made.push(element("p", { class: "small-print" }, words));
    }
    return made;
  }

  /** Where the head is the best, or better than the baseline beyond doubt. */
  #tasksOf(number: number): HTMLElement[] {
    const rows = [...this.atlas.relations, ...this.atlas.coreference].flatMap((task) => {
      const at = task.heads.findIndex(({ head }) => head === number);
      const score = task.heads[at];
      return score && (score.best || isStrong(task, score)) ? [{ task, score }] : [];
    });
    if (rows.length === 0) return [];
    rows.sort(
      (one, two) =>
        Number(two.score.best) - Number(one.score.best) || two.score.score - one.score.score,
    );
    const lines = rows.map(({ task, score }) => taskLine(task, score));
    const title = element("h3", {}, "Annotated text");
    return [
      element(
        "section",
        { class: "card-part" },
        title,
        element("ul", { class: "tasks" }, ...lines),
      ),
    ];
  }
}

function isStrong(task: Task, score: Score): boolean {
  const base = Math.max(0, ...task.baselines.map((each) => each.score ?? 0));
  return (score.low ?? score.score) > base;
}

function taskLine(task: Task, score: Score): HTMLElement {
  return element(
    "li",
    {},
    element("span", { class: "task-name" }, element("b", {}, task.name), ` ${task.meaning}`),
    element(
      "span",
      { class: "task-score" },
      element("b", {}, scoreInFigures(score.score)),
      ` ${intervalInWords(score)}`,
    ),
    scoreBar(task, score),
    element(
      "span",
      { class: "task-base" },
      score.best ? "best of all heads" : "",
      ...baselinesOf(task),
    ),
  );
}
