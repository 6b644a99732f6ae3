import type { Feed } from "../data/loader";
import { type CanvasTrack, canvasTrackBase } from "./canvas-track";
import type { AxisView } from "./draw-axis";
import { drawLine, linesInSight } from "./draw-line";
import type { ForPlugins, Scale, TrackContext } from "./higlass";
import type { Pen } from "./pen";
import { sceneOf } from "./scene";

interface Options {
  readonly side: "top" | "left";
}

/** Beside the map, small: how much each key receives, and how widely each query looks. */
export function lineTrack(
  forPlugins: ForPlugins,
  context: TrackContext,
  options: Options,
): CanvasTrack {
  const scene = sceneOf(context.viewUid);
  const { side } = options;

  class Line extends canvasTrackBase(forPlugins) {
    readonly #feed: Feed = scene.loader.feed(() => this.draw());

    override sceneChanged(): void {
      this.#ask();
      this.draw();
    }

    override zoomed(x: Scale, y: Scale): void {
      super.zoomed(x, y);
      this.#ask();
    }

    get #view(): AxisView {
      const top = side === "top";
      const [from, to] = (top ? this._xScale : this._yScale).domain();
      const [width, height] = this.dimensions;
      return { side, from, to, length: top ? width : height, depth: top ? height : width };
    }

    #ask(): void {
      if (!scene.ready || this.#view.length < 2) return;
      const paths = linesInSight(scene, this.#view);
      this.#feed.want(paths.filter((path) => !scene.loader.peek(path)));
    }

    paint(pen: Pen): void {
      drawLine(pen, this.#view, scene);
    }

    override remove(): void {
      this.#feed.close();
      super.remove();
    }
  }
  return new Line(context, options);
}
