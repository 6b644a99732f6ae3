import { TILE } from "../data/contract";
import { headKey } from "../data/heads";
import { levelFor, linePath, tileSpan, tokensPerCell } from "../data/tiles";
import type { AxisView } from "./draw-axis";
import type { Pen } from "./pen";
import type { Scene } from "./scene";

/** A track of this depth has room for its name. */
const NAMED_FROM = 20;

/** Where the parts of a line are that are in sight. */
export function linesInSight(scene: Scene, view: AxisView): string[] {
  // The mean of everything has no lines of its own.
  if (scene.facts.ref.call === "all") return [];
  const z = levelOf(scene, view);
  const [first, last] = tileSpan(scene.facts, z, view.from, view.to, sizeOf(scene, view));
  const paths: string[] = [];
  for (let x = first; x <= last; x++) paths.push(pathOf(scene, view, z, x));
  return paths;
}

/** Draw what is here of a line: how much each key receives, or how widely each query looks. */
export function drawLine(pen: Pen, view: AxisView, scene: Scene): void {
  if (scene.facts.ref.call === "all") return;
  const top = view.side === "top";
  const z = levelOf(scene, view);
  const tokens = tokensPerCell(scene.facts.fullZoom, z);
  const place = (token: number): number =>
    ((token - view.from) / (view.to - view.from)) * view.length;
  const depth = view.depth - 4;
  const first = Math.max(0, Math.floor(view.from / tokens));
  const last = Math.min(Math.ceil(sizeOf(scene, view) / tokens), Math.ceil(view.to / tokens));
  // One outline, in steps: bars side by side would leave seams.
  const outline: number[] = [];
  const add = (along: number, height: number): void => {
    const away = depth + 2 - height;
    outline.push(...(top ? [along, away] : [away, along]));
  };
  add(place(first * tokens), 0);
  for (let cell = first; cell < last; cell++) {
    const value = scene.loader.peek(pathOf(scene, view, z, Math.floor(cell / TILE)))?.[cell % TILE];
    const height = Math.max(0.5, depth * shareOf(scene, view, value));
    add(place(cell * tokens), height);
    add(place((cell + 1) * tokens), height);
  }
  add(place(last * tokens), 0);
  pen.shape(outline, scene.colours.tint);
  if (view.depth >= NAMED_FROM) drawName(pen, view, scene);
}

/** Say what a line is, at its end. */
function drawName(pen: Pen, { side, length, depth }: AxisView, { colours }: Scene): void {
  const setting = { size: 10, colour: colours.ink, align: "right" } as const;
  if (side === "top") pen.text("received", length - 4, depth / 2, setting);
  else pen.text("entropy", depth / 2, 4, { ...setting, turn: -90 });
}

function levelOf({ facts }: Scene, { from, to, length }: AxisView): number {
  return levelFor(facts, length / (to - from));
}

function sizeOf({ facts }: Scene, { side }: AxisView): number {
  return side === "top" ? facts.keys : facts.queries;
}

function pathOf({ facts, pool }: Scene, { side }: AxisView, z: number, x: number): string {
  const name = side === "top" ? "received" : "entropy";
  // The lines are about weights; where there are maps of effects, there are those of the largest.
  const line = `${headKey(facts.ref)}-${name}-${pool === "effect" ? "max" : pool}`;
  return linePath(line, z, x);
}

/** How high a cell stands, 0 … 1. */
function shareOf({ facts }: Scene, { side }: AxisView, value: number | undefined): number {
  if (value === undefined || Number.isNaN(value)) return 0;
  return side === "top" ? receivedShare(value) : entropyShare(value, facts.keys);
}

/** What keys receive differs by orders of magnitude: from one part in 100,000 to everything. */
function receivedShare(value: number): number {
  return value <= 1e-5 ? 0 : Math.min(1, 1 + Math.log10(value) / 5);
}

function entropyShare(value: number, keys: number): number {
  return Math.max(0, Math.min(1, value / Math.log(Math.max(2, keys))));
}
