import { element } from "../../dom/element";
import { count } from "../../look/figures";
import { showAround } from "../../tokens/visible";
import type { Atlas } from "../data/contract";

/** How measures are defined, and where the numbers come from. */
export function notesSections(atlas: Atlas): HTMLElement[] {
  const measures = atlas.measures.map(({ name, unit, about }): [string, string] => {
    return [name, unit ? `${about} (${unit})` : about];
  });
  const definitions = element(
    "section",
    { class: "panel", "aria-labelledby": "measures-title" },
    element("h2", { id: "measures-title" }, "What is measured"),
    element(
      "p",
      { class: "small-print" },
      "Measures without a unit are shares of attention from 0 to 1. They are means over all rows of " +
        "attention, if nothing else is said.",
    ),
    pairs(measures),
  );
  const provenance = element(
    "section",
    { class: "panel", "aria-labelledby": "provenance-title" },
    element("h2", { id: "provenance-title" }, "Where this comes from"),
    pairs(atlas.provenance),
    element("h3", {}, "Skipped"),
  );
  if (atlas.skipped.length === 0)
    provenance.append(element("p", { class: "small-print" }, "nothing"));
  else provenance.append(pairs(atlas.skipped.map(([reason, number]) => [reason, count(number)])));
  return [definitions, provenance];
}

function pairs(list: readonly (readonly [string, string])[]): HTMLElement {
  const made = element("dl", { class: "pairs-list" });
  for (const [name, words] of list) {
    made.append(
      element(
        "div",
        {},
        element("dt", {}, showAround([name])),
        element("dd", {}, element("bdi", {}, showAround([words]))),
      ),
    );
  }
  return made;
}
