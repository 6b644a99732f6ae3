import { SHADES } from "./palettes";
import type { ValueRange } from "./range";

/** Paint values into pixels; where nobody may look, a pixel stays clear. */
export function paint(
  values: Float32Array,
  pixels: Uint32Array,
  table: Uint32Array,
  range: ValueRange,
): void {
  const last = SHADES - 1;
  const { low, high } = range;
  if (range.signed) {
    paintSigned(values, pixels, table, range);
    return;
  }
  if (range.scaling === "linear") {
    const factor = last / (high - low);
    for (let at = 0; at < values.length; at++) {
      const value = values[at] as number;
      if (Number.isNaN(value)) pixels[at] = 0;
      else {
        const shade = (value - low) * factor;
        pixels[at] = table[shade <= 0 ? 0 : shade >= last ? last : shade | 0] as number;
      }
    }
    return;
  }
  const factor = last / Math.log(high / low);
  const start = Math.log(low);
  for (let at = 0; at < values.length; at++) {
    const value = values[at] as number;
    if (Number.isNaN(value)) pixels[at] = 0;
    else if (value <= low) pixels[at] = table[0] as number;
    else {
      const shade = (Math.log(value) - start) * factor;
      pixels[at] = table[shade >= last ? last : shade | 0] as number;
    }
  }
}

function paintSigned(
  values: Float32Array,
  pixels: Uint32Array,
  table: Uint32Array,
  { scaling, low, high }: ValueRange,
): void {
  const middle = (SHADES - 1) / 2;
  const factor = middle / (scaling === "linear" ? high : Math.log(high / low));
  for (let at = 0; at < values.length; at++) {
    const value = values[at] as number;
    const size = Math.min(Math.abs(value), high);
    const steps = scaling === "linear" ? size : size > low ? Math.log(size / low) : 0;
    const shade = Math.round(middle + Math.sign(value) * steps * factor);
    pixels[at] = Number.isNaN(value) ? 0 : (table[shade] as number);
  }
}

/** The same as a canvas of so many columns. */
export function painted(
  values: Float32Array,
  columns: number,
  table: Uint32Array,
  range: ValueRange,
): HTMLCanvasElement {
  const canvas = document.createElement("canvas");
  canvas.width = columns;
  canvas.height = values.length / columns;
  const picture = new ImageData(columns, canvas.height);
  paint(values, new Uint32Array(picture.data.buffer), table, range);
  canvas.getContext("2d")?.putImageData(picture, 0, 0);
  return canvas;
}
