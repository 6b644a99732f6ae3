import type { Scale } from "./scale";

/** The luminance on which black and white are read equally well. */
const HALFWAY = 0.179;

/** A colour of a scale, from a share of 0 to 1, and black or white, whichever is read better on it. */
export function coloursAt(scale: Scale, share: number): [string, string] {
  const step = 3 * Math.round(255 * share);
  const [red, green, blue] = [scale[step] ?? 0, scale[step + 1] ?? 0, scale[step + 2] ?? 0];
  const light = 0.2126 * linear(red) + 0.7152 * linear(green) + 0.0722 * linear(blue);
  return [`rgb(${red} ${green} ${blue})`, light > HALFWAY ? "#000000" : "#ffffff"];
}

/** How much light a channel gives, 0 to 1. */
function linear(channel: number): number {
  const part = channel / 255;
  return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
}
