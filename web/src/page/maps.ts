import type { PageData } from "./contract";
import type { Edges } from "./edges";
import { PageError } from "./errors";

/** A small picture of a head: the brightness of each of its rows (queries) and columns (keys). Of
 * effects, `ZERO` is none. */
export interface HeadMap {
  readonly rows: number;
  readonly columns: number;
  readonly cells: Uint8Array;
}

export const ZERO = 128;

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
    maps.push(means.length > 0 ? [blend(means, page.largest !== null)] : []);
  }
  return maps;
}

/** The maps of a short text whose edges are all in the page: of each block, those of its sections. */
export function mapsOf(blocks: readonly (readonly Edges[])[]): HeadMap[][] {
  // Effects of all heads have one scale, and so have their sums.
  const heads = largestOf(blocks.flatMap((edges) => edges.slice(0, -1)));
  const sums = largestOf(blocks.flatMap((edges) => (edges.length > 1 ? edges.slice(-1) : [])));
  return blocks.map((sections) =>
    sections.map((edges, section) => {
      const last = section === sections.length - 1;
      const shared = sections.length === 1 ? largestOf([edges]) : last ? sums : heads;
      return mapOf(edges, edges.signed ? shared : largestOf([edges]));
    }),
  );
}

function mapOf(edges: Edges, largest: number): HeadMap {
  const { queries: rows, keys: columns, signed } = edges;
  const cells = new Uint8Array(rows * columns).fill(signed ? ZERO : 0);
  for (let query = 0; query < rows; query++) {
    const lit = edges.lookedAtBy(query);
    for (const [rank, key] of lit.tokens.entries()) {
      const share = (lit.weights[rank] as number) / largest;
      cells[query * columns + key] = signed ? signedCell(share) : 255 * Math.sqrt(share) + 0.5;
    }
  }
  return { rows, columns, cells };
}

/** The brightness of an effect, given as a share of the largest. */
function signedCell(share: number): number {
  return ZERO + Math.round(127 * Math.sign(share) * Math.sqrt(Math.abs(share)));
}

function largestOf(edges: readonly Edges[]): number {
  const all = edges.map((one) => Math.abs(one.largestWithin([0, one.queries], [0, one.keys])));
  return Math.max(1e-30, ...all);
}

function cellsOf(page: PageData, text: number): number {
  const tokens = page.texts[text]?.pieces.length ?? 0;
  return Math.ceil(tokens / tokensInCell(tokens, page.map_size));
}

/** The page has no map of an average: its layers are averaged here, brightness undone first. */
function blend(maps: readonly HeadMap[], signed: boolean): HeadMap {
  const { rows, columns } = maps[0] as HeadMap;
  const sums = new Float32Array(rows * columns);
  for (const map of maps) {
    for (let cell = 0; cell < sums.length; cell++) {
      const brightness = (map.cells[cell] as number) - (signed ? ZERO : 0);
      (sums[cell] as number) += brightness * Math.abs(brightness);
    }
  }
  const highest = sums.reduce((high, sum) => Math.max(high, Math.abs(sum)), 1);
  const cells = Uint8Array.from(sums, (sum) =>
    signed ? signedCell(sum / highest) : 255 * Math.sqrt(sum / highest),
  );
  return { rows, columns, cells };
}
