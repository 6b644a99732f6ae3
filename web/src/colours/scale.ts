/** Red, green and blue for each of 256 brightnesses. */
export type Scale = Uint8ClampedArray;

/** From nothing to a head's largest weight: one hue, paper to ink. */
const MAP_LIGHT = ["#f4f6fa", "#c3d5f0", "#7ba6e0", "#3a6fc4", "#163a7d"];
const MAP_DARK = ["#1c2028", "#203a68", "#2f62b4", "#6ea0ea", "#d6e6ff"];

/** From low to high, told apart without telling red from green, and in grey. */
const MEASURE_LIGHT = ["#f6f7dc", "#c7e6b9", "#73c6bd", "#2f94bd", "#245aa2", "#172a66"];
const MEASURE_DARK = ["#1b2349", "#23508f", "#2b85ad", "#5dbab4", "#b6dfae", "#f7f6d0"];

export const mapScale = (dark: boolean): Scale => scale(dark ? MAP_DARK : MAP_LIGHT);
export const measureScale = (dark: boolean): Scale => scale(dark ? MEASURE_DARK : MEASURE_LIGHT);

/** The same colours as a CSS gradient, for a legend. */
export function gradient(dark: boolean): string {
  return `linear-gradient(to right, ${(dark ? MEASURE_DARK : MEASURE_LIGHT).join(", ")})`;
}

/** The colours of maps as a CSS gradient. */
export function mapGradient(dark: boolean): string {
  return `linear-gradient(to right, ${(dark ? MAP_DARK : MAP_LIGHT).join(", ")})`;
}

/** Colours between stops that are equally far apart. */
export function scale(stops: readonly string[]): Scale {
  const colours = stops.map((stop) =>
    [1, 3, 5].map((at) => Number.parseInt(stop.slice(at, at + 2), 16)),
  );
  const made = new Uint8ClampedArray(256 * 3);
  for (let step = 0; step < 256; step++) {
    const place = (step / 255) * (stops.length - 1);
    const from = Math.min(stops.length - 2, Math.floor(place));
    for (let channel = 0; channel < 3; channel++) {
      const low = colours[from]?.[channel] ?? 0;
      const high = colours[from + 1]?.[channel] ?? 0;
      made[3 * step + channel] = low + (high - low) * (place - from);
    }
  }
  return made;
}
