import { capitalized } from "../look/blocks";
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
  const what = page.largest === null ? "weights" : "effects";
  if (holdsAll(page, scene)) sentences.push(`All ${what} are in this file.`);
  else {
    const least = page.floor > 0 ? `, if at least ${Number(page.floor.toPrecision(2))}` : "";
    const many = page.kept === 1 ? "the strongest key" : `the ${count(page.kept)} strongest keys`;
    sentences.push(`This file holds ${many} of each token${least}; weaker ones are left out.`);
  }
  const rounding = page.weight_bits === 8 ? "0.004" : "0.00002";
  const most = page.largest === null ? rounding : "0.002 % of the largest";
  sentences.push(`${capitalized(what)} are rounded, by at most ${most}.`);
  return sentences.join(" ");
}
