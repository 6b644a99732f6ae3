/** Cells in their colours, `size` × `size`, as canvases keep pixels. */
export interface PaintedTile {
  readonly size: number;
  readonly pixels: Uint32Array;
}

/**
 * Paint a map pixel by pixel: each has the colour of the cell in which its middle is.
 *
 * That is what graphics cards do, so that what is painted here is what the engine will paint.
 *
 * @param size how many cells a tile has in each direction.
 * @param columns for each column of pixels, the number of its cell along the keys.
 * @param rows for each row of pixels, the number of its cell along the queries.
 * @param tileAt the painted cells of a tile; where there is none, pixels stay clear.
 */
export function sample(
  size: number,
  columns: Int32Array,
  rows: Int32Array,
  tileAt: (x: number, y: number) => Uint32Array | null,
): Uint32Array<ArrayBuffer> {
  const pixels = new Uint32Array(columns.length * rows.length);
  let at = 0;
  for (const row of rows) {
    const y = Math.floor(row / size);
    const start = (row - y * size) * size;
    let first = 0;
    let end = Number.NEGATIVE_INFINITY;
    let tile: Uint32Array | null = null;
    for (const column of columns) {
      if (column >= end) {
        const x = Math.floor(column / size);
        tile = tileAt(x, y);
        first = x * size;
        end = first + size;
      }
      if (tile) pixels[at] = tile[start + column - first] as number;
      at++;
    }
  }
  return pixels;
}

/**
 * The number of the cell for each of so many pixels.
 *
 * @param from where the first pixel begins, counted in cells.
 * @param step how many cells a pixel is wide.
 */
export function cellsOf(count: number, from: number, step: number): Int32Array {
  return Int32Array.from({ length: count }, (_, pixel) => Math.floor(from + (pixel + 0.5) * step));
}

/**
 * How often the cells of a tile are halved in number where a pixel is wider than one.
 *
 * Graphics cards do so too, or else they would pick some cells and leave out others.
 */
export function halvings(cellsPerPixel: number): number {
  return Math.max(0, Math.round(Math.log2(cellsPerPixel)));
}

/** Every 2 × 2 cells as one, in the mean of their colours. */
export function halved({ size, pixels }: PaintedTile): PaintedTile {
  const half = size / 2;
  const means = new Uint32Array(half * half);
  for (let y = 0; y < half; y++) {
    for (let x = 0; x < half; x++) {
      const at = 2 * y * size + 2 * x;
      const four = [pixels[at], pixels[at + 1], pixels[at + size], pixels[at + size + 1]];
      means[y * half + x] = meanColour(four as number[]);
    }
  }
  return { size: half, pixels: means };
}

/** What is clear has no colour, and makes the mean clearer. */
function meanColour(colours: readonly number[]): number {
  const alpha = colours.reduce((sum, colour) => sum + (colour >>> 24), 0);
  if (alpha === 0) return 0;
  const channel = (shift: number): number => {
    const sum = colours.reduce((so, each) => so + ((each >>> shift) & 255) * (each >>> 24), 0);
    return Math.round(sum / alpha) << shift;
  };
  return ((Math.round(alpha / colours.length) << 24) | channel(16) | channel(8) | channel(0)) >>> 0;
}
