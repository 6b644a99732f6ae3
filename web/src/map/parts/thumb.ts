import { painted } from "../colours/paint";
import type { Colormap } from "../engine/scene";

/** Side of a small map, in cells. */
export const THUMB = 32;
const CELLS = THUMB * THUMB;

/** The small map of a head, or of the mean over all heads of a call. */
export function paintThumb(
  thumbs: Float32Array,
  head: number | "mean",
  tokens: number,
  colormap: Colormap,
): HTMLCanvasElement {
  const values =
    head === "mean" ? meanOf(thumbs) : thumbs.subarray(head * CELLS, (head + 1) * CELLS);
  const tokensPerCell = Math.max(1, tokens / THUMB);
  return painted(values, THUMB, colormap.table, colormap.range(tokensPerCell));
}

function meanOf(thumbs: Float32Array): Float32Array {
  const heads = thumbs.length / CELLS;
  return Float32Array.from({ length: CELLS }, (_, cell) => {
    let sum = 0;
    for (let head = 0; head < heads; head++) sum += thumbs[head * CELLS + cell] as number;
    return sum / heads;
  });
}
