import type { Lit } from "../page/edges";

/** Tints have this many steps, so that a change too small to see changes nothing on the page. */
export const STEPS = 100;

/** A weight that is there at all can be seen. */
const FAINTEST = 6;

/**
 * How strong the tint of a weight or an effect is, with its sign. The square root lets small ones be
 * seen; it is the same for all heads, so that heads can be compared.
 */
export function tintOf(weight: number, most: number): number {
  const size = Math.sqrt(Math.min(1, Math.abs(weight) / most));
  return Math.sign(weight) * Math.max(FAINTEST, Math.round(STEPS * size));
}

/** The tints of all tokens of a text of which some are lit. */
export function tintsOfLit(lit: Lit, length: number): Int8Array {
  const tints = new Int8Array(length);
  for (let rank = 0; rank < lit.tokens.length; rank++) {
    tints[lit.tokens[rank] as number] = tintOf(lit.weights[rank] as number, lit.most);
  }
  return tints;
}

/** Tints of mean weights, which are small in long texts: the highest but for a few is the strongest. */
export function tintsOfMeans(means: Float32Array): Int8Array {
  const sorted = means.map(Math.abs).sort();
  const high = sorted[Math.floor(0.98 * (sorted.length - 1))] || sorted.at(-1) || 1;
  return Int8Array.from(means, (mean) =>
    Math.round(0.7 * STEPS * Math.sign(mean) * Math.sqrt(Math.min(1, Math.abs(mean) / high))),
  );
}
