import { coloursAt } from "./ink";
import { type Scale, scale } from "./scale";

/** Colours from the lowest to the highest, as Python has them: `src/regard/views/diverging.py`. */
export interface Stops {
  readonly light: readonly string[];
  readonly dark: readonly string[];
}

/** Colours of signed numbers: as far from the middle as a number is from 0. */
export class Diverging {
  readonly #scale: Scale;

  constructor(
    readonly stops: readonly string[],
    /** The number, by size, that has the strongest colour. */
    readonly most: number,
  ) {
    this.#scale = scale(stops);
  }

  /** Colour an element as its background, and its text so that it can be read. */
  paint(made: HTMLElement, value: number): void {
    const share = this.most > 0 ? Math.max(-1, Math.min(1, value / this.most)) : 0;
    [made.style.backgroundColor, made.style.color] = coloursAt(this.#scale, (1 + share) / 2);
  }

  /** All colours, or those of positive numbers, as a CSS gradient for a legend. */
  gradient(signed: boolean): string {
    const middle = (this.stops.length - 1) / 2;
    return `linear-gradient(to right, ${this.stops.slice(signed ? 0 : middle).join(", ")})`;
  }
}

/** The largest number by size; 0 of none. */
export function mostOf(values: Iterable<number>): number {
  let most = 0;
  for (const value of values) most = Math.max(most, Math.abs(value));
  return most;
}
