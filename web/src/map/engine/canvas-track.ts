import type { ForPlugins, Pair, PixiTrack, Scale, TrackContext } from "./higlass";
import { CanvasPen, type Pen, SvgPen } from "./pen";

/** A track that is drawn with a pen: on the screen by way of a canvas, in exports as an SVG. */
export interface CanvasTrack extends PixiTrack {
  /** What it shows has changed. */
  sceneChanged(): void;
  exported(): SVGElement;
}

type Base = new (context: TrackContext, options: object) => CanvasTrack;

/** The base of tracks that draw with a pen. Subclasses say what, in `paint`. */
export function canvasTrackBase(forPlugins: ForPlugins): Base & {
  prototype: { paint(pen: Pen): void };
} {
  const { PIXI } = forPlugins.libraries;

  class Drawn extends forPlugins.tracks.PixiTrack implements CanvasTrack {
    readonly #canvas = document.createElement("canvas");
    readonly #sprite = new PIXI.Sprite(
      PIXI.Texture.from(this.#canvas, { scaleMode: PIXI.SCALE_MODES.NEAREST }),
    );

    constructor(
      private readonly owner: TrackContext,
      options: object,
    ) {
      super(owner, options);
      this.pMain.addChild(this.#sprite);
    }

    paint(_pen: Pen): void {}

    sceneChanged(): void {
      this.draw();
    }

    override draw(): void {
      const [width, height] = this.dimensions;
      if (width < 2 || height < 2) return;
      const pixels = Math.max(1, devicePixelRatio);
      const canvas = this.#canvas;
      const [wide, high] = [Math.round(width * pixels), Math.round(height * pixels)];
      const resized = canvas.width !== wide || canvas.height !== high;
      if (resized) {
        canvas.width = wide;
        canvas.height = high;
      }
      const brush = canvas.getContext("2d");
      if (!brush) return;
      brush.setTransform(1, 0, 0, 1, 0, 0);
      brush.clearRect(0, 0, wide, high);
      brush.setTransform(pixels, 0, 0, pixels, 0, 0);
      this.paint(new CanvasPen(brush));
      this.#sprite.texture.baseTexture.setResolution(pixels);
      this.#sprite.texture.update();
      this.#sprite.position.set(this.position[0], this.position[1]);
      this.owner.animate();
    }

    exported(): SVGElement {
      const pen = new SvgPen();
      this.paint(pen);
      return pen.group;
    }

    override zoomed(x: Scale, y: Scale): void {
      this.xScale(x);
      this.yScale(y);
      this.draw();
    }

    override setPosition(position: Pair): void {
      super.setPosition(position);
      this.draw();
    }

    override setDimensions(dimensions: Pair): void {
      super.setDimensions(dimensions);
      this.draw();
    }

    override drawLabel(): void {}

    override drawError(): void {}

    override rerender(): void {}

    override remove(): void {
      this.#sprite.destroy(true);
      super.remove();
    }
  }

  return Drawn;
}
