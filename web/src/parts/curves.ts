import { drawn } from "../dom/element";
import type { Edges, Lit } from "../page/edges";

/** The height of a row of tokens; the style sheet has the same. */
export const ROW = 28;

/** Faint lines of about the same weight are one path, so that a picture of thousands stays light. */
const SHADES = 10;

/** A curve from a query on the left to a key on the right, in a picture 100 wide. */
function curve(query: number, key: number, shift = 0): string {
  const from = (query + 0.5) * ROW + shift;
  const to = (key + 0.5) * ROW + shift;
  return `M0 ${from}C45 ${from} 55 ${to} 100 ${to}`;
}

/** All lines of a head, faintly. */
export function faintCurves(edges: Edges): SVGPathElement[] {
  // First those that support, then those that oppose.
  const shades = Array.from({ length: 2 * SHADES }, (): string[] => []);
  for (let query = 0; query < edges.queries; query++) {
    const { tokens, weights } = edges.lookedAtBy(query);
    for (let rank = 0; rank < tokens.length; rank++) {
      const share = (weights[rank] as number) / edges.most;
      const weight = Math.min(1, Math.abs(share));
      const shade = Math.min(SHADES - 1, Math.floor(weight * SHADES)) + (share < 0 ? SHADES : 0);
      // What is weaker than this could not be seen among so many.
      if (weight >= 0.01) shades[shade]?.push(curve(query, tokens[rank] as number));
    }
  }
  return shades.flatMap((curves, shade) => {
    if (curves.length === 0) return [];
    const weight = ((shade % SHADES) + 0.5) / SHADES;
    const line = path(curves.join(""), 0.06 + 0.5 * weight, 0.75 + 1.75 * weight);
    line.classList.toggle("against", shade >= SHADES);
    return line;
  });
}

/** How the lines of one head among several stand apart from those of the others. */
export interface Apart {
  readonly colour: string;
  /** Strokes and gaps, in pixels; none of a solid line. */
  readonly dashes: readonly number[];
  /** Downwards, in pixels. */
  readonly shift: number;
  /** Weaker lines are left out: they could not be told apart. */
  readonly least: number;
}

/** The lines of one token, strongly; the strongest is drawn last, over the others. */
export function strongCurves(
  lit: Lit,
  token: number,
  toKeys: boolean,
  { colour, dashes, shift, least }: Apart = { colour: "", dashes: [], shift: 0, least: 0 },
): SVGPathElement[] {
  const curves: SVGPathElement[] = [];
  for (let rank = lit.tokens.length - 1; rank >= 0; rank--) {
    const end = lit.tokens[rank] as number;
    const share = (lit.weights[rank] as number) / lit.most;
    const weight = Math.min(1, Math.abs(share));
    if (weight < least) continue;
    const shape = toKeys ? curve(token, end, shift) : curve(end, token, shift);
    const line = path(shape, 0.15 + 0.85 * Math.sqrt(weight), 0.75 + 4.25 * weight);
    line.style.stroke = colour;
    if (dashes.length > 0) {
      line.style.strokeDasharray = dashes.join(" ");
      // Round ends would fill the gaps of thick lines.
      line.style.strokeLinecap = "butt";
    }
    line.classList.toggle("against", share < 0);
    curves.push(line);
  }
  return curves;
}

function path(shape: string, opacity: number, width: number): SVGPathElement {
  return drawn("path", {
    d: shape,
    "stroke-opacity": opacity.toFixed(3),
    "stroke-width": width.toFixed(2),
  });
}
