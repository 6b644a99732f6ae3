import { count } from "../look/figures";
import type { Scene } from "../look/scene";
import type { PageData } from "../page/contract";

/** Whether no weight of this head is left out. */
export function holdsAll(page: PageData, scene: Scene): boolean {
  return page.kept >= scene.edges.keys && page.floor <= 0;
}

/** What of the weights is in the file, in plain words. */
export function keptInWords(page: PageData, scene: Scene): string {
  const sentences: string[] = [];
  if (holdsAll(page, scene)) sentences.push("All weights are in this file.");
  else {
    const least = page.floor > 0 ? `, if at least ${page.floor}` : "";
    const many = page.kept === 1 ? "the strongest key" : `the ${count(page.kept)} strongest keys`;
    sentences.push(`This file holds ${many} of each token${least}; weaker ones are left out.`);
  }
  const rounding = page.weight_bits === 8 ? "0.004" : "0.00002";
  sentences.push(`Weights are rounded, by at most ${rounding}.`);
  return sentences.join(" ");
}
