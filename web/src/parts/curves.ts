import { drawn } from "../dom/element";
import type { Edges, Lit } from "../page/edges";

/** The height of a row of tokens; the style sheet has the same. */
export const ROW = 28;

/** Faint lines of about the same weight are one path, so that a picture of thousands stays light. */
const SHADES = 10;

/** A curve from a query on the left to a key on the right, in a picture 100 wide. */
function curve(query: number, key: number): string {
  const from = (query + 0.5) * ROW;
  const to = (key + 0.5) * ROW;
  return `M0 ${from}C45 ${from} 55 ${to} 100 ${to}`;
}

/** All lines of a head, faintly. */
export function faintCurves(edges: Edges): SVGPathElement[] {
  const shades = Array.from({ length: SHADES }, (): string[] => []);
  for (let query = 0; query < edges.queries; query++) {
    const { tokens, weights } = edges.lookedAtBy(query);
    for (let rank = 0; rank < tokens.length; rank++) {
      const weight = Math.min(1, weights[rank] as number);
      const shade = Math.min(SHADES - 1, Math.floor(weight * SHADES));
      // What is weaker than this could not be seen among so many.
      if (weight >= 0.01) shades[shade]?.push(curve(query, tokens[rank] as number));
    }
  }
  return shades.flatMap((curves, shade) => {
    if (curves.length === 0) return [];
    const weight = (shade + 0.5) / SHADES;
    return path(curves.join(""), 0.06 + 0.5 * weight, 0.75 + 1.75 * weight);
  });
}

/** The lines of one token, strongly; the strongest is drawn last, over the others. */
export function strongCurves(lit: Lit, token: number, toKeys: boolean): SVGPathElement[] {
  const curves: SVGPathElement[] = [];
  for (let rank = lit.tokens.length - 1; rank >= 0; rank--) {
    const end = lit.tokens[rank] as number;
    const weight = Math.min(1, lit.weights[rank] as number);
    const shape = toKeys ? curve(token, end) : curve(end, token);
    curves.push(path(shape, 0.15 + 0.85 * Math.sqrt(weight), 0.75 + 4.25 * weight));
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
