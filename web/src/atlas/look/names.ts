import { measured, weightInFigures } from "../../look/figures";
import type { Head, Measure } from "../data/contract";

/** "5.11": layer and head, where there is little room. */
export function shortName(head: Head): string {
  return `${head.layer}.${head.head}`;
}

export function longName(head: Head): string {
  return `Layer ${head.layer}, head ${head.head}`;
}

/** A value with as many digits as tell heads apart. */
export function figureOf(measure: Measure, value: number): string {
  return measure.unit === "" ? weightInFigures(value) : measured(value);
}

/** The same with its unit. */
export function withUnit(measure: Measure, value: number): string {
  return `${figureOf(measure, value)} ${measure.unit}`.trimEnd();
}

/** "−2", "0", "+3". */
export function signed(offset: number): string {
  return offset < 0 ? `−${-offset}` : offset > 0 ? `+${offset}` : "0";
}

/** "4", "4–5". */
export function distanceName([nearest, farthest]: readonly [number, number]): string {
  return farthest <= nearest ? String(nearest) : `${nearest}–${farthest}`;
}
