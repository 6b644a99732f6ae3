import { TILE } from "./contract";
import type { HeadFacts } from "./heads";

/** A square of 256 × 256 cells: x counts tiles along the keys, y along the queries. */
export interface TilePlace {
  readonly z: number;
  readonly x: number;
  readonly y: number;
}

/** Cells grow no larger than this many pixels before a deeper level is taken. */
const LARGEST_CELL = 1.5;

/** How many tokens a cell of a level covers in each direction. */
export function tokensPerCell(fullZoom: number, z: number): number {
  return 2 ** (fullZoom - z);
}

/** The level to show when a token has so many pixels. */
export function levelFor(facts: HeadFacts, pixelsPerToken: number): number {
  const level = Math.ceil(facts.fullZoom + Math.log2(pixelsPerToken / LARGEST_CELL));
  return Math.max(0, Math.min(facts.maxZoom, level));
}

/** Which tiles of a level cover a stretch of tokens, first and last. */
export function tileSpan(
  facts: HeadFacts,
  z: number,
  from: number,
  to: number,
  size: number,
): [number, number] {
  const width = TILE * tokensPerCell(facts.fullZoom, z);
  const last = Math.floor((Math.min(to, size) - 1e-6) / width);
  return [Math.max(0, Math.floor(from / width)), Math.max(-1, last)];
}

/** Whether nothing can be in a tile: it is outside of the matrix, or all its keys come too late. */
export function isEmptyTile(facts: HeadFacts, { z, x, y }: TilePlace): boolean {
  const width = TILE * tokensPerCell(facts.fullZoom, z);
  if (x * width >= facts.keys || y * width >= facts.queries) return true;
  // With keys of an earlier text before them, queries stand at the end.
  const offset = Math.max(0, facts.keys - facts.queries);
  const last = Math.min((y + 1) * width, facts.queries) - 1 + offset;
  return facts.causal && x * width > last;
}

export function tilePath(tileset: string, { z, x, y }: TilePlace): string {
  return `tiles/${tileset}/${z}/${x}/${y}.bin`;
}

export function linePath(line: string, z: number, x: number): string {
  return `lines/${line}/${z}/${x}.bin`;
}

/** A part of the matrix, first and last token of each axis. */
export interface Sight {
  readonly x: readonly [number, number];
  readonly y: readonly [number, number];
}

/** The tiles of a level that are in sight, those in the middle first. */
export function tilesInSight(facts: HeadFacts, z: number, sight: Sight): TilePlace[] {
  const [left, right] = tileSpan(facts, z, ...sight.x, facts.keys);
  const [top, bottom] = tileSpan(facts, z, ...sight.y, facts.queries);
  const places: TilePlace[] = [];
  for (let y = top; y <= bottom; y++) {
    for (let x = left; x <= right; x++) places.push({ z, x, y });
  }
  const [midX, midY] = [(left + right) / 2, (top + bottom) / 2];
  const distance = ({ x, y }: TilePlace): number => Math.hypot(x - midX, y - midY);
  return places.sort((one, other) => distance(one) - distance(other));
}
