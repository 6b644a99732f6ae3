import type { Pool } from "../data/contract";

export type Scaling = "log" | "linear";

/** Which weights the first and the last colour of a scale stand for. */
export interface ValueRange {
  readonly scaling: Scaling;
  /** Whether values may be negative: 0 is in the middle, and low and high are sizes. */
  readonly signed: boolean;
  readonly low: number;
  readonly high: number;
}

const DECADES = 5;

/**
 * The range of a level. It does not depend on what is seen, so that heads can be compared.
 *
 * The weights of a row add up to 1. So the largest weight in a cell can be 1, while the mean of a
 * cell of b × b pairs is at most 1 / b. Effects have no bound but the largest of the recording.
 */
export function rangeOf(
  pool: Pool,
  scaling: Scaling,
  tokensPerCell: number,
  largestEffect = 0,
): ValueRange {
  const signed = pool === "effect";
  const high = signed ? largestEffect || 1 : pool === "max" ? 1 : 1 / tokensPerCell;
  return { scaling, signed, low: scaling === "log" ? high / 10 ** DECADES : 0, high };
}

/** Where in a range a value stands, 0 … 1. */
export function shareOf(range: ValueRange, value: number): number {
  if (range.signed) {
    const size = shareOf({ ...range, signed: false }, Math.abs(value));
    return 0.5 + (Math.sign(value) * size) / 2;
  }
  if (range.scaling === "linear") return clamp((value - range.low) / (range.high - range.low));
  if (!(value > range.low)) return 0;
  return clamp(Math.log(value / range.low) / Math.log(range.high / range.low));
}

function clamp(share: number): number {
  return Math.max(0, Math.min(1, share));
}

/** Values that a legend names. */
export function legendTicks(range: ValueRange): number[] {
  if (range.signed) return [-range.high, 0, range.high];
  if (range.scaling === "linear") return [0, range.high / 2, range.high];
  const first = Math.ceil(Math.log10(range.low) - 1e-9);
  const last = Math.floor(Math.log10(range.high) + 1e-9);
  return Array.from({ length: last - first + 1 }, (_, step) => 10 ** (first + step));
}
