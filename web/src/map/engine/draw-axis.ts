import { count } from "../../look/figures";
import { showAlone } from "../../tokens/visible";
import type { Pen } from "./pen";
import type { AxisColours, AxisText, Mark } from "./scene";
import { fitted, ticksOf, wrapped } from "./ticks";

/** Which axis, which tokens it shows, and how much room it has. */
export interface AxisView {
  readonly side: "top" | "left";
  readonly from: number;
  readonly to: number;
  /** Along the map. */
  readonly length: number;
  /** Away from it. */
  readonly depth: number;
}

/** From this size on, tokens are written out. */
export const READABLE = 11;
/** From this size on, tokens above the map lean instead of standing. */
const LEANING = 15;
const EDGE = 7;
const SMALL = 11;

/** Draw an axis: its tokens if they can be read, positions and sections otherwise. */
export function drawAxis(pen: Pen, view: AxisView, text: AxisText, colours: AxisColours): string[] {
  const scale = view.length / (view.to - view.from);
  for (const mark of text.marks) drawMark(pen, view, scale, mark, colours);
  const readable = scale >= READABLE && text.pieces.length > 0;
  return readable
    ? drawTokens(pen, view, scale, text, colours)
    : drawPositions(pen, view, scale, text, colours);
}

function drawTokens(
  pen: Pen,
  view: AxisView,
  scale: number,
  text: AxisText,
  colours: AxisColours,
): string[] {
  const first = Math.max(0, Math.floor(view.from));
  const last = Math.min(text.pieces.length, Math.ceil(view.to));
  const size = Math.min(14, Math.max(SMALL, scale - 3));
  const chosen = new Set(
    text.marks.filter(({ kind }) => kind === "chosen").map(({ from }) => from),
  );
  const turn = view.side === "left" ? 0 : scale >= LEANING ? -60 : -90;
  const lean = turn === -60 ? Math.sin(Math.PI / 3) : 1;
  const room = (view.depth - EDGE - 4) / lean;
  const drawn: string[] = [];
  for (let token = first; token < last; token++) {
    const at = (token + 0.5 - view.from) * scale;
    const bold = chosen.has(token);
    const whole = showAlone(text.pieces[token] ?? "");
    const words = fitted(whole, room, (each) => pen.measure(each, size, bold));
    const setting = { size, bold, colour: bold ? colours.stroke : colours.ink };
    if (view.side === "left") {
      pen.text(words, view.depth - EDGE, at, { ...setting, align: "right" });
    } else {
      pen.text(words, at, view.depth - EDGE, { ...setting, align: "left", turn });
    }
    drawn.push(words);
  }
  return drawn;
}

function drawPositions(
  pen: Pen,
  view: AxisView,
  scale: number,
  text: AxisText,
  colours: AxisColours,
): string[] {
  const drawn: string[] = [];
  const taken: number[] = [];
  const sections = text.sections.filter(({ token }) => token >= view.from && token < view.to);
  // A section that began before is still being read.
  const before = text.sections.filter(({ token }) => token < view.from).at(-1);
  const shown = before ? [{ ...before, token: view.from }, ...sections] : sections;
  let free = Number.NEGATIVE_INFINITY;
  for (const [index, section] of shown.entries()) {
    const at = (section.token - view.from) * scale;
    const next = shown[index + 1];
    const end = next ? (next.token - view.from) * scale : view.length;
    if (section !== shown[0] || !before) drawSectionEdge(pen, view, at, colours);
    const room = view.side === "top" ? end - at - 10 : view.depth - 12;
    if (view.side === "top" ? room < 34 : at < free || end - at < 30) continue;
    const measure = (each: string): number => pen.measure(each, SMALL, false);
    const setting = { size: SMALL, colour: colours.muted, align: "left" as const };
    const lines =
      view.side === "top"
        ? [fitted(section.title, room, measure)]
        : wrapped(section.title, room, measure);
    for (const [line, words] of lines.entries()) {
      if (view.side === "top") pen.text(words, at + 5, view.depth - 36, setting);
      else {
        pen.text(words, 8, at + 10 + 14 * line, setting);
        taken.push(at + 10 + 14 * line);
        free = at + 26 + 14 * line;
      }
    }
    drawn.push(lines.join(" "));
  }
  for (const tick of ticksOf(view.from, view.to, scale, view.side === "top" ? 72 : 44)) {
    if (tick < 0 || tick > text.size) continue;
    const at = (tick - view.from) * scale;
    const words = count(tick);
    const near = view.side === "left" && taken.some((place) => Math.abs(place - at) < 13);
    if (view.side === "top") pen.rect(at - 0.5, view.depth - 5, 1, 5, colours.muted);
    else pen.rect(view.depth - 5, at - 0.5, 5, 1, colours.muted);
    if (near) continue;
    const half = pen.measure(words, SMALL, false) / 2;
    const setting = { size: SMALL, colour: colours.muted };
    if (view.side === "top") {
      const place = Math.max(half, Math.min(view.length - half, at));
      pen.text(words, place, view.depth - 14, { ...setting, align: "center" });
    } else {
      const place = Math.max(7, Math.min(view.length - 7, at));
      pen.text(words, view.depth - 9, place, { ...setting, align: "right" });
    }
    drawn.push(words);
  }
  return drawn;
}

function drawSectionEdge(pen: Pen, view: AxisView, at: number, colours: AxisColours): void {
  if (view.side === "top") pen.rect(at, view.depth - 44, 1, 44, colours.line);
  else pen.rect(8, at, view.depth - 8, 1, colours.line);
}

/** Marks are never thinner than can be seen. */
function drawMark(pen: Pen, view: AxisView, scale: number, mark: Mark, colours: AxisColours): void {
  const start = (mark.from - view.from) * scale;
  const length = Math.max(2, (mark.to - mark.from) * scale);
  if (start + length < 0 || start > view.length) return;
  const colour = {
    chosen: colours.tint,
    lit: colours.tint,
    match: colours.match,
    "match-here": colours.matchHere,
  }[mark.kind];
  const wide = mark.kind === "chosen" || scale >= READABLE;
  const depth = wide ? view.depth : 7;
  const faded = mark.strength < 1 ? withAlpha(colour, mark.strength) : colour;
  if (view.side === "top") pen.rect(start, view.depth - depth, length, depth, faded);
  else pen.rect(view.depth - depth, start, depth, length, faded);
}

function withAlpha(colour: string, alpha: number): string {
  const byte = Math.round(255 * Math.max(0, Math.min(1, alpha)));
  return `${colour}${byte.toString(16).padStart(2, "0")}`;
}
