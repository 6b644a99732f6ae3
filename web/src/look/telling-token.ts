import type { Edges } from "../page/edges";

/** How many tokens of a long text are looked through: what is chosen should be on the first screen. */
const LOOKED_THROUGH = 128;

/**
 * The query whose strongest weight is largest, apart from weights on itself, the first and the last
 * key, which receive what is left over in many heads.
 */
export function tellingToken(edges: Edges): number | null {
  if (edges.queries === 1) return 0;
  let best: number | null = null;
  let highest = 0;
  for (let query = 0; query < Math.min(edges.queries, LOOKED_THROUGH); query++) {
    const { tokens, weights } = edges.lookedAtBy(query);
    for (let rank = 0; rank < tokens.length; rank++) {
      const key = tokens[rank] as number;
      if (key === query || key === 0 || key === edges.keys - 1) continue;
      if ((weights[rank] as number) > highest) {
        highest = weights[rank] as number;
        best = query;
      }
      break;
    }
  }
  return best;
}
