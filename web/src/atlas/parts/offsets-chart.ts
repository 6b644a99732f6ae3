import { drawn } from "../../dom/element";
import { weightInFigures } from "../../look/figures";
import { signed } from "../look/names";
import { across, chart, roundUp, upwards } from "./chart";

/** How much goes to each offset, as bars; the mean over all heads as a line above each. */
export function offsetsChart(
  offsets: readonly number[],
  shares: readonly (number | null)[],
  means: readonly number[],
): HTMLElement {
  const top = roundUp(Math.max(...shares.map((share) => share ?? 0), ...means));
  const middle = (at: number): number => (at + 0.5) / offsets.length;
  const half = (0.38 * (across(1) - across(0))) / offsets.length;
  const bars = shares.flatMap((share, at) => {
    const x = across(middle(at));
    const high = upwards((share ?? 0) / top);
    const mean = upwards((means[at] ?? 0) / top);
    const name = `${signed(offsets[at] ?? 0)}: ${weightInFigures(share ?? 0)}`;
    const shape = {
      class: "bar",
      x: x - half,
      width: 2 * half,
      y: high,
      height: upwards(0) - high,
    };
    return [
      drawn("rect", shape, drawn("title", {}, name)),
      drawn("line", { class: "mean", x1: x - half, x2: x + half, y1: mean, y2: mean }),
    ];
  });
  const ticks = offsets.flatMap((offset, at) => {
    return offset % 4 === 0 ? [{ share: middle(at), name: signed(offset) }] : [];
  });
  const strongest = shares.reduce<number>((best, share, at) => {
    return (share ?? 0) > (shares[best] ?? 0) ? at : best;
  }, 0);
  const words = `Strongest offset ${signed(offsets[strongest] ?? 0)}, ${weightInFigures(shares[strongest] ?? 0)}`;
  return chart("By offset", words, { top, ticks, name: "key − query, in tokens" }, ...bars);
}
