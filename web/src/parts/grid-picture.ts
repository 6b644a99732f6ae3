import { mapColours, paintMap } from "../colours/paint-map";
import { measureScale, type Scale } from "../colours/scale";
import type { Block } from "../look/blocks";
import type { PageData } from "../page/contract";
import type { HeadMap } from "../page/maps";
import { columnOf, type GridLayout } from "./grid-layout";

/** A number for each head, and the largest by size. */
export interface Colouring {
  readonly name: string;
  readonly unit: string;
  readonly high: number;
  readonly value: (block: Block, section: number) => number | null | undefined;
}

/** All maps, or one number, of all heads, in one picture behind the cells. */
export function paintGrid(
  canvas: HTMLCanvasElement,
  layout: GridLayout,
  maps: readonly (readonly HeadMap[])[],
  page: PageData,
  colouring: Colouring | null,
  dark: boolean,
): void {
  const pixels = devicePixelRatio;
  canvas.width = Math.round(layout.width * pixels);
  canvas.height = Math.round(layout.height * pixels);
  canvas.style.width = `${layout.width}px`;
  canvas.style.height = `${layout.height}px`;
  const pen = canvas.getContext("2d");
  if (!pen) return;
  const colours = mapColours(page, dark);
  const signed = page.largest !== null;
  const scale = signed ? colours.scale : measureScale(dark);
  const size = Math.round(layout.cell * pixels);
  for (const { block, top } of layout.rows) {
    for (let section = 0; section <= block.heads; section++) {
      const left = Math.round(columnOf(layout, block, section) * pixels);
      const upper = Math.round(top * pixels);
      const map = maps[block.index]?.[section];
      const value = colouring?.value(block, section);
      if (colouring && value !== null && value !== undefined) {
        const share = colouring.high > 0 ? value / colouring.high : 0;
        pen.fillStyle = colourAt(scale, signed ? (1 + share) / 2 : share);
        pen.fillRect(left, upper, size, size);
      } else if (!colouring && map) {
        pen.putImageData(paintMap(map, colours, size, size), left, upper);
      } else {
        paintNothing(pen, left, upper, size, dark);
      }
    }
  }
}

function colourAt(scale: Scale, share: number): string {
  const step = 3 * Math.round(255 * Math.min(1, Math.max(0, share)));
  return `rgb(${scale[step]} ${scale[step + 1]} ${scale[step + 2]})`;
}

/** An empty frame: there is no value, which is not a value of nothing. */
function paintNothing(
  pen: CanvasRenderingContext2D,
  left: number,
  top: number,
  size: number,
  dark: boolean,
): void {
  pen.strokeStyle = dark ? "#3a414d" : "#cfd3da";
  pen.lineWidth = 1;
  pen.strokeRect(left + 0.5, top + 0.5, size - 1, size - 1);
}
