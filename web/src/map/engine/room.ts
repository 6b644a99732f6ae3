import type { Pair } from "./higlass";

/** How much room the axes and the lines beside the map take. */
export interface Margins {
  readonly top: number;
  readonly left: number;
  readonly line: number;
}

/** HiGlass lays a view out in so many rows of whole pixels. */
const ROWS = 12;

/** Where a map is within its element, and how large. */
export interface Room {
  readonly position: Pair;
  readonly dimensions: Pair;
}

/** Where HiGlass will lay a map out in an element of this size. */
export function roomFor(width: number, height: number, margins: Margins): Room {
  const left = margins.left + margins.line;
  const top = margins.top + margins.line;
  const high = ROWS * Math.floor((height + 1) / ROWS);
  return { position: [left, top], dimensions: [width - left, high - top] };
}

/** Whether a map fills its element, but for what is left of a row. */
export function fills({ position, dimensions }: Room, width: number, height: number): boolean {
  const right = position[0] + dimensions[0];
  const bottom = position[1] + dimensions[1];
  return Math.hypot(right - width, bottom - height) <= ROWS;
}
