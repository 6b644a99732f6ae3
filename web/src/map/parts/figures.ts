import { measured } from "../../look/figures";
import type { Measure } from "../data/contract";

/** A measure of a head: "1.95 nats", "4 %". */
export function measureName(measure: Measure, value: number): string {
  if (measure.name === "effect") return value.toPrecision(2).replace("-", "−");
  if (measure.unit === "share") return `${Math.round(100 * value)} %`;
  return `${measured(value)} ${measure.unit}`.trimEnd();
}
