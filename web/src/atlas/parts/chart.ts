import { drawn, element } from "../../dom/element";

export const WIDTH = 420;
export const HEIGHT = 150;
const LEFT = 42;
const RIGHT = 8;
const TOP = 8;
const BOTTOM = 34;

/** A place in a chart, from a share of its width and of its height. */
export const across = (share: number): number => LEFT + share * (WIDTH - LEFT - RIGHT);
export const upwards = (share: number): number => HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM);

export interface Tick {
  readonly share: number;
  readonly name: string;
}

/** A chart of shares of attention: an upright axis from 0 to `top`, ticks below, and what is drawn. */
export function chart(
  title: string,
  words: string,
  axis: { readonly top: number; readonly ticks: readonly Tick[]; readonly name: string },
  ...shapes: readonly SVGElement[]
): HTMLElement {
  const picture = drawn("svg", {
    viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
    role: "img",
    "aria-label": words,
  });
  for (const share of [0, 0.5, 1]) {
    const y = upwards(share);
    picture.append(drawn("line", { class: "rule", x1: across(0), x2: across(1), y1: y, y2: y }));
    const name = (share * axis.top).toFixed(axis.top < 0.1 ? 3 : 2);
    picture.append(drawn("text", { x: LEFT - 5, y: y + 4, "text-anchor": "end" }, name));
  }
  for (const { share, name } of axis.ticks) {
    const place = { x: across(share), y: HEIGHT - BOTTOM + 14, "text-anchor": "middle" };
    picture.append(drawn("text", place, name));
  }
  const below = { x: across(0.5), y: HEIGHT - 5, "text-anchor": "middle", class: "axis" };
  picture.append(...shapes, drawn("text", below, axis.name));
  return element("figure", { class: "chart" }, element("figcaption", {}, title), picture);
}

/** The least round number that is not below a share. */
export function roundUp(share: number): number {
  const steps = [0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8];
  return steps.find((step) => share <= step) ?? 1;
}

/** The mean over heads of each of some shares. */
export function meansOf(lines: readonly (readonly (number | null)[] | null)[]): number[] {
  const known = lines.filter((line) => line !== null);
  const length = known[0]?.length ?? 0;
  return Array.from({ length }, (_, at) => {
    return known.reduce((sum, line) => sum + (line[at] ?? 0), 0) / known.length;
  });
}
