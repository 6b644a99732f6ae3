/** Round positions within a stretch, no closer than `gap` pixels. */
export function ticksOf(from: number, to: number, pixelsPerToken: number, gap: number): number[] {
  const step = stepFor(gap / pixelsPerToken);
  const ticks: number[] = [];
  // A tick at the very edge does not depend on how its place was rounded.
  const last = Math.floor(to / step + 1e-6);
  for (let number = Math.max(0, Math.ceil(from / step - 1e-6)); number <= last; number++) {
    ticks.push(number * step);
  }
  return ticks;
}

/** The smallest of 1, 2, 5, 10, 20, 50 … that is not below a number. */
function stepFor(least: number): number {
  if (least <= 1) return 1;
  const power = 10 ** Math.floor(Math.log10(least));
  const factor = [1, 2, 5, 10].find((each) => each * power >= least) ?? 10;
  return factor * power;
}

/** A text in at most two lines that fit into a width, cut where it must be. */
export function wrapped(
  words: string,
  width: number,
  measure: (words: string) => number,
): string[] {
  if (measure(words) <= width) return [words];
  const parts = words.split(" ");
  let first = "";
  while (parts.length > 0) {
    const longer = first === "" ? (parts[0] as string) : `${first} ${parts[0]}`;
    if (measure(longer) > width) break;
    first = longer;
    parts.shift();
  }
  if (first === "") return [fitted(words, width, measure)];
  return [first, fitted(parts.join(" "), width, measure)];
}

/** A text that fits into a width, cut with an ellipsis where it must be. */
export function fitted(words: string, width: number, measure: (words: string) => number): string {
  if (measure(words) <= width) return words;
  const letters = [...words.slice(0, 120)];
  let low = 0;
  let high = letters.length;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (measure(`${letters.slice(0, middle).join("")}…`) <= width) low = middle;
    else high = middle;
  }
  return low > 0 ? `${letters.slice(0, low).join("")}…` : "…";
}
