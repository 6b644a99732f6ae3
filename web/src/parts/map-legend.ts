import { Diverging } from "../colours/diverging";
import { mapGradient } from "../colours/scale";
import { element } from "../dom/element";
import { inFigures } from "../look/figures";
import type { Scene } from "../look/scene";
import type { PageData } from "../page/contract";
import { tokensInCell } from "../page/maps";

/** What colours of all maps mean, in a sentence. */
export function mapColoursInWords(page: PageData): string {
  return page.largest === null
    ? "Colour: square root of the weight, from 0 to each head’s own largest. Compare shapes, not strengths."
    : "Colour: square root of the effect. One scale for all heads, another for sums.";
}

/** The largest number of a map, or "" where its cells are means of several pairs. */
export function largestInMap(page: PageData, scene: Scene, section: number): string {
  const edges = scene.whole.at(section);
  const sizes = [edges.queries, edges.keys] as const;
  if (sizes.some((size) => tokensInCell(size, page.map_size) > 1)) return "";
  const largest = edges.largestWithin([0, sizes[0]], [0, sizes[1]]);
  return inFigures(page.largest === null ? largest : Math.abs(largest), edges);
}

/** The colours of a map between their ends. */
export function mapLegend(
  page: PageData,
  scene: Scene,
  section: number,
  dark: boolean,
): HTMLElement[] {
  const bar = element("span", { class: "bar", "aria-hidden": "true" });
  const signed = page.largest !== null;
  const { light, dark: atNight } = page.diverging;
  bar.style.backgroundImage = signed
    ? new Diverging(dark ? atNight : light, 1).gradient(true)
    : mapGradient(dark);
  const [low, high] = signed
    ? ["opposes", "supports"]
    : ["0", largestInMap(page, scene, section) || "largest mean of a cell"];
  return [
    element("div", { class: "scale" }, element("span", {}, low), bar, element("span", {}, high)),
    element("p", {}, signed ? "square root of the effect" : "square root of the weight"),
  ];
}
