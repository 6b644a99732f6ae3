import { paintMap } from "../colours/paint-map";
import { mapScale, measureScale, type Scale } from "../colours/scale";
import type { Measure } from "../page/contract";
import type { HeadMap } from "../page/maps";
import { columnOf, type GridLayout } from "./grid-layout";

/** All maps, or one measure, of all heads, in one picture behind the cells. */
export function paintGrid(
  canvas: HTMLCanvasElement,
  layout: GridLayout,
  maps: readonly (readonly HeadMap[])[],
  measure: Measure | null,
  dark: boolean,
): void {
  const pixels = devicePixelRatio;
  canvas.width = Math.round(layout.width * pixels);
  canvas.height = Math.round(layout.height * pixels);
  canvas.style.width = `${layout.width}px`;
  canvas.style.height = `${layout.height}px`;
  const pen = canvas.getContext("2d");
  if (!pen) return;
  const scale = measure ? measureScale(dark) : mapScale(dark);
  const size = Math.round(layout.cell * pixels);
  for (const { block, top } of layout.rows) {
    for (let section = 0; section <= block.heads; section++) {
      const left = Math.round(columnOf(layout, block, section) * pixels);
      const upper = Math.round(top * pixels);
      const map = maps[block.index]?.[section];
      const value = measure ? block.measures[measure.id]?.[section] : undefined;
      if (measure && value !== null && value !== undefined) {
        pen.fillStyle = colourAt(scale, value / measure.high);
        pen.fillRect(left, upper, size, size);
      } else if (!measure && map) {
        pen.putImageData(paintMap(map, scale, size, size), left, upper);
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
