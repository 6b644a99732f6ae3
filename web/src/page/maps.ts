import type { PageData } from "./contract";
import { PageError } from "./errors";

/** A small picture of a head: the brightness of each of its rows (queries) and columns (keys). */
export interface HeadMap {
  readonly rows: number;
  readonly columns: number;
  readonly cells: Uint8Array;
}

/** How many tokens share one row or column of a map. */
export function tokensInCell(tokens: number, mapSize: number): number {
  return Math.max(1, Math.ceil(tokens / mapSize));
}

/** All maps of a page: for each layer those of its heads and of their mean, then those of the averages. */
export function decodeMaps(bytes: Uint8Array, page: PageData): HeadMap[][] {
  let at = 0;
  const maps = page.layers.map((layer) => {
    const rows = cellsOf(page, layer.queries);
    const columns = cellsOf(page, layer.keys);
    return Array.from({ length: layer.heads.length + 1 }, () => {
      const cells = bytes.subarray(at, at + rows * columns);
      at += rows * columns;
      return { rows, columns, cells };
    });
  });
  if (at !== bytes.length) throw new PageError("The small maps of the heads are damaged.");
  for (const average of page.averages) {
    const means = average.layers.flatMap((layer) => maps[layer]?.at(-1) ?? []);
    maps.push(means.length > 0 ? [blend(means)] : []);
  }
  return maps;
}

function cellsOf(page: PageData, text: number): number {
  const tokens = page.texts[text]?.pieces.length ?? 0;
  return Math.ceil(tokens / tokensInCell(tokens, page.map_size));
}

/** The page has no map of an average: its layers are averaged here, brightness undone first. */
function blend(maps: readonly HeadMap[]): HeadMap {
  const { rows, columns } = maps[0] as HeadMap;
  const sums = new Float32Array(rows * columns);
  for (const map of maps) {
    for (let cell = 0; cell < sums.length; cell++) {
      (sums[cell] as number) += (map.cells[cell] as number) ** 2;
    }
  }
  const highest = sums.reduce((high, sum) => Math.max(high, sum), 1);
  return { rows, columns, cells: Uint8Array.from(sums, (sum) => 255 * Math.sqrt(sum / highest)) };
}
