import { element } from "../../dom/element";
import { scoreInFigures } from "../../look/figures";
import type { Score, Task } from "../data/contract";

/** A score from 0 to 1: a bar, its interval as a line, and each baseline as a tick. */
export function scoreBar(task: Task, score: Score): HTMLElement {
  const bar = element("span", { class: "score-bar", "aria-hidden": "true" });
  bar.append(at(element("span", { class: "score-fill" }), "width", score.score));
  for (const { name, score: base } of task.baselines) {
    if (base === null) continue;
    const tick = element("span", {
      class: "score-base",
      title: `${name}: ${scoreInFigures(base)}`,
    });
    bar.append(at(tick, "left", base));
  }
  if (score.low !== null && score.high !== null) {
    const interval = at(element("span", { class: "score-interval" }), "left", score.low);
    bar.append(at(interval, "width", score.high - score.low));
  }
  return bar;
}

export function intervalInWords({ low, high }: Score): string {
  return low === null || high === null ? "" : `${scoreInFigures(low)}–${scoreInFigures(high)}`;
}

/** "0.42 word at −1". */
export function baselinesOf(task: Task): HTMLElement[] {
  return task.baselines
    .filter(({ score }) => score !== null)
    .map(({ name, score }) => {
      const figure = element("b", {}, scoreInFigures(score as number));
      return element("span", { class: "baseline" }, figure, " ", name);
    });
}

function at<Part extends HTMLElement>(part: Part, side: "left" | "width", share: number): Part {
  part.style[side] = `${(100 * Math.min(1, Math.max(0, share))).toFixed(2)}%`;
  return part;
}
