import type { Place } from "../look/state";
import type { GridRow } from "./grid-layout";

/** The cell that an arrow key leads to, or null if the key is no arrow or there is nothing there. */
export function stepInGrid(rows: readonly GridRow[], place: Place, key: string): Place | null {
  const row = rows.findIndex((each) => each.block.index === place.block);
  const heads = rows[row]?.block.heads ?? 0;
  const across = (section: number): Place | null => {
    return section < 0 || section > heads ? null : { block: place.block, section };
  };
  const along = (next: number): Place | null => {
    const block = rows[next]?.block;
    if (!block) return null;
    const mean = place.section >= heads;
    return {
      block: block.index,
      section: mean ? block.heads : Math.min(place.section, block.heads),
    };
  };
  switch (key) {
    case "ArrowLeft":
      return across(place.section - 1);
    case "ArrowRight":
      return across(place.section + 1);
    case "ArrowUp":
      return along(row - 1);
    case "ArrowDown":
      return along(row + 1);
    case "Home":
      return across(0);
    case "End":
      return across(heads);
    default:
      return null;
  }
}
