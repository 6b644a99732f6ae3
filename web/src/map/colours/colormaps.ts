import type { Colormap } from "../engine/scene";
import type { Look } from "../look/look";
import { tableOf } from "./palettes";
import { rangeOf } from "./range";

/** How the tiles of the maps are painted. */
export function mapColormap({ palette, pool, scaling }: Look, dark: boolean): Colormap {
  const table = tableOf(palette, dark);
  return { table, range: (tokens) => rangeOf(pool, scaling, tokens) };
}

/** How small maps are painted: they are means, whatever the large ones are. */
export function thumbColormap(look: Look, dark: boolean): Colormap {
  return mapColormap({ ...look, pool: "mean" }, dark);
}
