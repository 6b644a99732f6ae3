import { drawn } from "../../dom/element";
import { count, weightInFigures } from "../../look/figures";
import { distanceName } from "../look/names";
import { across, chart, roundUp, type Tick, upwards } from "./chart";

type Bin = readonly [number, number];

/** How much goes to each distance, over its logarithm; the mean over all heads as a thin line. */
export function distanceChart(
  bins: readonly Bin[],
  shares: readonly (number | null)[],
  means: readonly number[],
): HTMLElement {
  const top = roundUp(Math.max(...shares.map((share) => share ?? 0), ...means));
  const last = Math.log1p(Math.max(1, ...bins.map(middleOf)));
  const place = (distance: number): number => Math.log1p(distance) / last;
  const line = (values: readonly (number | null)[]): string => {
    const points = bins.map((bin, at) => {
      return `${across(place(middleOf(bin))).toFixed(1)} ${upwards((values[at] ?? 0) / top).toFixed(1)}`;
    });
    return points.join("L");
  };
  const end = upwards(0);
  const area = `M${across(0)} ${end}L${line(shares)}L${across(1)} ${end}Z`;
  const dots = bins.map((bin, at) => {
    const circle = {
      cx: across(place(middleOf(bin))),
      cy: upwards((shares[at] ?? 0) / top),
      r: 2.5,
    };
    const name = `${distanceName(bin)}: ${weightInFigures(shares[at] ?? 0)}`;
    return drawn("circle", circle, drawn("title", {}, name));
  });
  return chart(
    "By distance",
    wordsOf(bins, shares),
    { top, ticks: ticksOf(bins, place), name: "distance in tokens, each point half an octave" },
    drawn("path", { class: "area", d: area }),
    drawn("path", { class: "curve", d: `M${line(shares)}` }),
    drawn("path", { class: "mean", d: `M${line(means)}` }),
    ...dots,
  );
}

/** Powers of two, as far apart as their names need. */
function ticksOf(bins: readonly Bin[], place: (distance: number) => number): Tick[] {
  const farthest = Math.max(...bins.map(([nearest]) => nearest));
  const ticks: Tick[] = [{ share: 0, name: "0" }];
  for (let distance = 1; distance <= farthest; distance *= 2) {
    const share = place(distance);
    if (share > 1 || share - (ticks.at(-1)?.share ?? 0) < 0.075) continue;
    ticks.push({ share, name: count(distance) });
  }
  return ticks;
}

function middleOf([nearest, farthest]: Bin): number {
  return farthest > nearest ? Math.sqrt(nearest * farthest) : nearest;
}

function wordsOf(bins: readonly Bin[], shares: readonly (number | null)[]): string {
  const words = bins.map((bin, at) => `${distanceName(bin)}: ${weightInFigures(shares[at] ?? 0)}`);
  return `Attention by distance. ${words.join(", ")}`;
}
