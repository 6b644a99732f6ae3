import { element } from "../../dom/element";
import { paint } from "../colours/paint";
import { cellsOf, halved, halvings, type PaintedTile, sample } from "../colours/sample";
import { TILE } from "../data/contract";
import type { Feed } from "../data/loader";
import { isEmptyTile, levelFor, tilePath, tilesInSight, tokensPerCell } from "../data/tiles";
import { type Camera, domainOf } from "../look/camera";
import { type AxisView, drawAxis } from "./draw-axis";
import { drawLine, linesInSight } from "./draw-line";
import { CanvasPen } from "./pen";
import type { Margins, Room } from "./room";
import type { Colormap, Scene } from "./scene";

/** A tile as it was painted last. */
interface Kept {
  readonly colormap: Colormap;
  readonly times: number;
  readonly tile: PaintedTile;
}

/** What is drawn: a map in its room, seen by a camera. */
interface Sight {
  readonly camera: Camera;
  readonly room: Room;
}

/**
 * A map before its engine is there: the same tiles, axes and lines in the same places.
 *
 * It needs no graphics card and draws slowly, but it is small and so it is here at once.
 */
export class Sketch {
  readonly element = element("canvas", { class: "sketch" });
  readonly #feed: Feed;
  readonly #painted = new WeakMap<Float32Array, Kept>();
  #sight: Sight | null = null;
  #frame = 0;

  constructor(
    private readonly scene: Scene,
    private readonly margins: Margins,
    /** It was drawn, and no tile was missing. */
    private readonly whole: () => void,
  ) {
    this.#feed = scene.loader.feed(() => this.#drawSoon());
  }

  look(camera: Camera, room: Room): void {
    this.#sight = { camera, room };
    this.changed();
  }

  /** The scene has another head, other colours or other marks. */
  changed(): void {
    if (!this.#sight) return;
    const needed = [...this.#tiles(this.#sight), ...this.#lines(this.#sight)];
    this.#feed.want(needed.filter((path) => !this.scene.loader.peek(path)));
    this.#drawSoon();
  }

  remove(): void {
    cancelAnimationFrame(this.#frame);
    this.#feed.close();
    this.element.remove();
  }

  #drawSoon(): void {
    cancelAnimationFrame(this.#frame);
    this.#frame = requestAnimationFrame(() => this.#draw());
  }

  #draw(): void {
    const sight = this.#sight;
    const brush = this.element.getContext("2d");
    if (!sight || !brush) return;
    const { position, dimensions } = sight.room;
    const pixels = Math.max(1, devicePixelRatio);
    const [width, height] = [position[0] + dimensions[0], position[1] + dimensions[1]];
    this.element.width = Math.round(width * pixels);
    this.element.height = Math.round(height * pixels);
    this.element.style.width = `${width}px`;
    this.element.style.height = `${height}px`;
    this.#drawTiles(brush, sight, pixels);
    for (const view of this.#views(sight, this.margins)) {
      const text = view.side === "top" ? this.scene.keys : this.scene.queries;
      this.#beside(brush, view, sight, pixels, 0, (pen) => {
        drawAxis(pen, view, text, this.scene.colours);
      });
    }
    const { line } = this.margins;
    for (const view of this.#views(sight, { top: line, left: line })) {
      const before = view.side === "top" ? this.margins.top : this.margins.left;
      this.#beside(brush, view, sight, pixels, before, (pen) => drawLine(pen, view, this.scene));
    }
    if (this.#tiles(sight).every((path) => this.scene.loader.peek(path))) this.whole();
  }

  #drawTiles(brush: CanvasRenderingContext2D, { camera, room }: Sight, pixels: number): void {
    const { facts, tileset } = this.scene;
    const z = levelFor(facts, camera.scale);
    const perCell = tokensPerCell(facts.fullZoom, z);
    const times = halvings(1 / (pixels * camera.scale * perCell));
    const tokens = perCell * 2 ** times;
    const step = 1 / (pixels * camera.scale * tokens);
    const cells = (axis: 0 | 1, middle: number): [number, Int32Array] => {
      const start = room.position[axis];
      const length = room.dimensions[axis];
      const first = Math.round(start * pixels);
      const count = Math.round((start + length) * pixels) - first;
      const from = middle + (first / pixels - start - length / 2) / camera.scale;
      return [first, cellsOf(count, from / tokens, step)];
    };
    const [left, columns] = cells(0, camera.x);
    const [top, rows] = cells(1, camera.y);
    if (columns.length === 0 || rows.length === 0) return;
    const found = new Map<string, Uint32Array | null>();
    const picture = sample(TILE / 2 ** times, columns, rows, (x, y) => {
      const path = tilePath(tileset, { z, x, y });
      const known = found.get(path);
      if (known !== undefined) return known;
      const values = this.scene.loader.peek(path);
      const tile = values ? this.#paint(values, perCell, times) : null;
      found.set(path, tile);
      return tile;
    });
    const bytes = new Uint8ClampedArray(picture.buffer);
    brush.putImageData(new ImageData(bytes, columns.length), left, top);
  }

  /** Paint a tile whose cells cover so many tokens, and halve it so many times. */
  #paint(values: Float32Array, tokens: number, times: number): Uint32Array {
    const { colormap } = this.scene;
    const before = this.#painted.get(values);
    if (before?.colormap === colormap && before.times === times) return before.tile.pixels;
    const pixels = new Uint32Array(TILE * TILE);
    paint(values, pixels, colormap.table, colormap.range(tokens));
    let tile: PaintedTile = { size: TILE, pixels };
    for (let time = 0; time < times; time++) tile = halved(tile);
    this.#painted.set(values, { colormap, times, tile });
    return tile.pixels;
  }

  /** Draw above the map or to its left, so many pixels from the edge. */
  #beside(
    brush: CanvasRenderingContext2D,
    view: AxisView,
    { room }: Sight,
    pixels: number,
    before: number,
    draw: (pen: CanvasPen) => void,
  ): void {
    const top = view.side === "top";
    const [left, above] = room.position;
    brush.save();
    brush.setTransform(pixels, 0, 0, pixels, 0, 0);
    brush.translate(top ? left : before, top ? before : above);
    brush.beginPath();
    brush.rect(0, 0, top ? view.length : view.depth, top ? view.depth : view.length);
    brush.clip();
    draw(new CanvasPen(brush));
    brush.restore();
  }

  #views({ camera, room }: Sight, depth: { top: number; left: number }): AxisView[] {
    const [width, height] = room.dimensions;
    const { x, y } = domainOf(camera, { width, height });
    return [
      { side: "top", from: x[0], to: x[1], length: width, depth: depth.top },
      { side: "left", from: y[0], to: y[1], length: height, depth: depth.left },
    ];
  }

  #tiles({ camera, room }: Sight): string[] {
    const { facts, tileset } = this.scene;
    const [width, height] = room.dimensions;
    const domain = domainOf(camera, { width, height });
    return tilesInSight(facts, levelFor(facts, camera.scale), domain)
      .filter((place) => !isEmptyTile(facts, place))
      .map((place) => tilePath(tileset, place));
  }

  #lines(sight: Sight): string[] {
    return this.#views(sight, this.margins).flatMap((view) => linesInSight(this.scene, view));
  }
}
