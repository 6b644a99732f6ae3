import type { Info } from "../data/contract";
import type { Colormap } from "../engine/scene";
import type { Look } from "../look/look";
import { type ColourScale, tableOf } from "./palettes";
import { rangeOf, type ValueRange } from "./range";

/** How the tiles of the maps are painted. */
export function mapColormap(look: Look, info: Info, dark: boolean): Colormap {
  const table = tableOf(scaleIn(look), dark);
  return { table, range: (tokens) => rangeIn(look, info, tokens) };
}

/** How small maps are painted: they are means, whatever the large ones are. */
export function thumbColormap(look: Look, info: Info, dark: boolean): Colormap {
  return mapColormap({ ...look, pool: "mean" }, info, dark);
}

/** The chosen palette, or that of effects. */
export function scaleIn({ pool, palette }: Look): ColourScale {
  return pool === "effect" ? "diverging" : palette;
}

/** Which values the colours stand for. */
export function rangeIn({ pool, scaling }: Look, info: Info, tokens: number): ValueRange {
  return rangeOf(pool, scaling, tokens, info.effects?.largest);
}
