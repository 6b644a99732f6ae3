import { type CanvasTrack, canvasTrackBase } from "./canvas-track";
import { drawAxis } from "./draw-axis";
import type { ForPlugins, TrackContext } from "./higlass";
import type { Pen } from "./pen";
import { sceneOf } from "./scene";

export interface AxisTrack extends CanvasTrack {
  /** The words that were drawn last. */
  texts(): readonly string[];
}

interface Options {
  readonly side: "top" | "left";
}

/** Tokens, positions and sections along the map: keys above it, queries to its left. */
export function axisTrack(
  forPlugins: ForPlugins,
  context: TrackContext,
  options: Options,
): AxisTrack {
  class Axis extends canvasTrackBase(forPlugins) implements AxisTrack {
    #texts: readonly string[] = [];

    texts(): readonly string[] {
      return this.#texts;
    }

    paint(pen: Pen): void {
      const scene = sceneOf(context.viewUid);
      const top = options.side === "top";
      const [from, to] = (top ? this._xScale : this._yScale).domain();
      const [width, height] = this.dimensions;
      const view = {
        side: options.side,
        from,
        to,
        length: top ? width : height,
        depth: top ? height : width,
      };
      this.#texts = drawAxis(pen, view, top ? scene.keys : scene.queries, scene.colours);
    }
  }
  return new Axis(context, options);
}
