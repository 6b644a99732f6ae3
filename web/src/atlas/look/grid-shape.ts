import type { Atlas } from "../data/contract";

/** Heads in rows, a row for each layer. */
export interface GridRow {
  readonly layer: number;
  /** Numbers of heads, by column; undefined where this layer has none. */
  readonly heads: readonly (number | undefined)[];
}

export function rowsOf(atlas: Atlas): GridRow[] {
  const rows = new Map<number, (number | undefined)[]>();
  for (const [number, { layer, head }] of atlas.heads.entries()) {
    const row = rows.get(layer) ?? [];
    row[head] = number;
    rows.set(layer, row);
  }
  const columns = Math.max(...Array.from(rows.values(), (row) => row.length));
  return Array.from(rows, ([layer, heads]) => {
    return { layer, heads: Array.from({ length: columns }, (_, column) => heads[column]) };
  });
}

export interface Room {
  readonly width: number;
  readonly height: number;
  /** Whether fingers point. */
  readonly coarse: boolean;
}

export const GAP = 2;
const LARGEST = 36;

/** How large a cell is: as large as there is room for, but never too small to hit. */
export function cellSize(rows: number, columns: number, room: Room): number {
  const across = Math.floor(room.width / columns) - GAP;
  const down = Math.floor(room.height / rows) - GAP;
  const fitting = Math.min(LARGEST, across, down);
  return Math.max(room.coarse ? 24 : 13, fitting);
}

/** The head that a key leads to from another, or null. */
export function stepFrom(rows: readonly GridRow[], from: number, key: string): number | null {
  const row = rows.findIndex((each) => each.heads.includes(from));
  const inRow = rows[row]?.heads ?? [];
  const column = inRow.indexOf(from);
  const inColumn = rows.map((each) => each.heads[column]);
  switch (key) {
    case "ArrowLeft":
      return known(inRow.slice(0, column)).at(-1) ?? null;
    case "ArrowRight":
      return known(inRow.slice(column + 1))[0] ?? null;
    case "ArrowUp":
      return known(inColumn.slice(0, row)).at(-1) ?? null;
    case "ArrowDown":
      return known(inColumn.slice(row + 1))[0] ?? null;
    case "Home":
      return known(inRow)[0] ?? null;
    case "End":
      return known(inRow).at(-1) ?? null;
    default:
      return null;
  }
}

function known(heads: readonly (number | undefined)[]): number[] {
  return heads.filter((head) => head !== undefined);
}
