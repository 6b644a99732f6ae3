import type { Paintwork } from "../engine/scene";
import type { Look } from "../look/look";
import { tableOf } from "./palettes";
import { rangeOf } from "./range";

/** How the tiles of the maps are painted. */
export function mapPaintwork({ palette, pool, scaling }: Look, dark: boolean): Paintwork {
  const table = tableOf(palette, dark);
  return { table, range: (tokens) => rangeOf(pool, scaling, tokens) };
}

/** How small maps are painted: they are means, whatever the large ones are. */
export function thumbPaintwork(look: Look, dark: boolean): Paintwork {
  return mapPaintwork({ ...look, pool: "mean" }, dark);
}
