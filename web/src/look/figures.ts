/** A weight with three digits. */
export function weightInFigures(weight: number): string {
  return weight > 0 && weight < 0.0005 ? "<0.001" : weight.toFixed(3);
}

/** An effect with its sign and three digits: "+0.812", "−0.031". */
export function effectInFigures(effect: number): string {
  return `${effect < 0 ? "−" : "+"}${Math.abs(effect).toFixed(3)}`;
}

/** A weight or an effect, whichever it is, with three digits or the first. */
export function inFigures(weight: number, { signed }: { readonly signed: boolean }): string {
  if (!signed) return weightInFigures(weight);
  if (weight === 0 || Math.abs(weight) >= 0.0005) return effectInFigures(weight);
  return `${weight < 0 ? "−" : "+"}${Number(Math.abs(weight).toPrecision(1))}`;
}

/** A score with two digits. */
export function scoreInFigures(score: number): string {
  return score.toFixed(2);
}

/** A share in percent. */
export function percent(share: number): string {
  if (share > 0 && share < 0.005) return "< 1 %";
  if (share >= 0.995 && share < 1) return "> 99 %";
  return `${Math.round(100 * share)} %`;
}

/** A measure: as many digits as tell heads apart. */
export function measured(value: number): string {
  if (value > 0 && value < 0.005) return "<0.01";
  return value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2);
}

/** A count with marks between thousands. */
export function count(number: number): string {
  return number.toLocaleString("en");
}
