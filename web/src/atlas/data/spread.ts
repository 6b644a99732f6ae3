import type { Atlas, Measure } from "./contract";

/** The values that a measure has over all heads. */
export interface Spread {
  readonly measure: Measure;
  /** One for each head; null where it was not measured. */
  readonly values: readonly (number | null)[];
  /** From the least to the largest. */
  readonly sorted: readonly number[];
  /** Where the colours begin and end. */
  readonly low: number;
  readonly high: number;
}

/** All measures that any head has. */
export function spreadsOf(atlas: Atlas): Spread[] {
  return atlas.measures.flatMap((measure, at) => {
    const values = atlas.heads.map((head) => head.values[at] ?? null);
    const sorted = values.filter((value) => value !== null).sort((one, two) => one - two);
    const high = sorted.at(-1);
    if (high === undefined) return [];
    const least = sorted.find((value) => value > 0) ?? high;
    // Colours that begin at zero can be compared between measures; a logarithm has no zero.
    const low = measure.scale === "log" ? least : Math.min(0, sorted[0] ?? 0);
    return [{ measure, values, sorted, low, high }];
  });
}

/** Where a value stands between low and high, 0 to 1. */
export function shareOf(spread: Spread, value: number): number {
  const { low, high, measure } = spread;
  if (high <= low) return value >= high && high > 0 ? 1 : 0;
  const share =
    measure.scale === "log"
      ? Math.log(Math.max(value, low) / low) / Math.log(high / low)
      : (value - low) / (high - low);
  return Math.min(1, Math.max(0, share));
}

/** Whether all of several heads have the same value, so that none is before another. */
export function allEqual({ sorted }: Spread): boolean {
  return sorted.length > 1 && sorted[0] === sorted.at(-1);
}

/** How many heads have more, plus one. */
export function rankOf(spread: Spread, value: number): number {
  let from = 0;
  let to = spread.sorted.length;
  while (from < to) {
    const middle = (from + to) >> 1;
    if ((spread.sorted[middle] as number) > value) to = middle;
    else from = middle + 1;
  }
  return spread.sorted.length - from + 1;
}
