import { element } from "../../dom/element";
import { count, weightInFigures } from "../../look/figures";
import type { Atlas, LabelGroup } from "../data/contract";
import { headButton } from "./head-button";

const SHOWN = 8;

/** The best heads of each label, and by which rule they got it. */
export function labelsSection(atlas: Atlas, go: (head: number) => void): HTMLElement {
  const rows = atlas.labels.map((group) => rowOf(atlas, group, go));
  return element(
    "section",
    { class: "panel", "aria-labelledby": "labels-title" },
    element("h2", { id: "labels-title" }, "Heads by label"),
    element("div", { class: "label-rows" }, ...rows),
  );
}

function rowOf(atlas: Atlas, group: LabelGroup, go: (head: number) => void): HTMLElement {
  const rules = atlas.rules.filter(({ label }) => label === group.label);
  const name = element(
    "h3",
    {},
    element("span", { class: "mark", "aria-hidden": "true" }, group.mark),
    group.label,
    element("span", { class: "number" }, count(group.heads.length)),
  );
  const words = rules.map(({ meaning, rule }) => {
    return element("p", { class: "small-print" }, `${meaning} (${rule})`);
  });
  const heads = element("div", { class: "head-buttons" });
  const add = (some: LabelGroup["heads"]): void => {
    for (const { head, strength } of some) {
      const found = atlas.heads[head];
      if (found) heads.append(headButton(found, () => go(head), strengthOf(group, strength)));
    }
  };
  add(group.heads.slice(0, SHOWN));
  const rest = group.heads.slice(SHOWN);
  if (rest.length > 0) {
    const more = element(
      "button",
      { type: "button", class: "plain" },
      `${count(rest.length)} more`,
    );
    more.addEventListener("click", () => {
      more.remove();
      add(rest);
    });
    heads.append(more);
  }
  if (group.heads.length === 0) heads.append(element("p", { class: "small-print" }, "none"));
  return element("div", { class: "label-row" }, element("div", {}, name, ...words), heads);
}

/** A share; of relations, how many a head has. */
function strengthOf({ label }: LabelGroup, strength: number | null): string {
  if (strength === null || label === "coreference") return "";
  if (label === "relation") return strength === 1 ? "" : `× ${strength}`;
  return weightInFigures(strength);
}
