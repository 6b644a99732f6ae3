import type { PageData } from "../page/contract";
import { type HeadMap, ZERO } from "../page/maps";
import { mapScale, type Scale, scale } from "./scale";

/** The colours of maps, and the brightness of nothing. */
export interface MapColours {
  readonly scale: Scale;
  readonly zero: number;
}

export function mapColours({ largest, diverging }: PageData, dark: boolean): MapColours {
  if (largest === null) return { scale: mapScale(dark), zero: 0 };
  return { scale: scale(dark ? diverging.dark : diverging.light), zero: ZERO };
}

/** A map as a picture of the given size. Where cells must share a pixel, the brightest is seen. */
export function paintMap(
  map: HeadMap,
  { scale, zero }: MapColours,
  width: number,
  height: number,
): ImageData {
  const picture = new ImageData(width, height);
  const columns = spans(map.columns, width);
  const rows = spans(map.rows, height);
  let at = 0;
  for (const [top, bottom] of rows) {
    for (const [left, right] of columns) {
      let brightest = zero;
      for (let row = top; row < bottom; row++) {
        for (let column = left; column < right; column++) {
          const cell = map.cells[row * map.columns + column] as number;
          if (Math.abs(cell - zero) > Math.abs(brightest - zero)) brightest = cell;
        }
      }
      picture.data[at] = scale[3 * brightest] as number;
      picture.data[at + 1] = scale[3 * brightest + 1] as number;
      picture.data[at + 2] = scale[3 * brightest + 2] as number;
      picture.data[at + 3] = 255;
      at += 4;
    }
  }
  return picture;
}

/** For each pixel, the first cell that it covers and the one after the last. */
function spans(cells: number, pixels: number): [number, number][] {
  return Array.from({ length: pixels }, (_, pixel) => {
    const first = Math.floor((pixel * cells) / pixels);
    return [first, Math.max(first + 1, Math.floor(((pixel + 1) * cells) / pixels))];
  });
}
