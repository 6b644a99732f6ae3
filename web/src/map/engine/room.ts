import type { Pair } from "./higlass";

/** How much room the axes and the lines beside the map take. */
export interface Margins {
  readonly top: number;
  readonly left: number;
  readonly line: number;
}

const ROOMY: Margins = { top: 74, left: 96, line: 26 };
const NARROW: Margins = { top: 58, left: 62, line: 16 };
/** Of maps beside each other. Above as much as to the left: a square pane has a square map. */
const SEVERAL: Margins = { top: 70, left: 70, line: 12 };
/** Of those that share axes, as in style/several.css, and of all on small screens. */
const SHARING: Margins = { top: 48, left: 48, line: 12 };

/** The margins of a single map on a screen of this size. */
export function marginsAlone(width: number, height: number): Margins {
  return isSmall(width, height) ? NARROW : ROOMY;
}

function isSmall(width: number, height: number): boolean {
  return Math.min(width, height) < 560;
}

/** The margins of a map among several; four share the axes of the first row and column. */
export function marginsAmong(
  index: number,
  sharing: boolean,
  width: number,
  height: number,
): Margins {
  if (!sharing) return isSmall(width, height) ? SHARING : SEVERAL;
  return {
    top: index < 2 ? SHARING.top : 0,
    left: index % 2 === 0 ? SHARING.left : 0,
    line: SHARING.line,
  };
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
