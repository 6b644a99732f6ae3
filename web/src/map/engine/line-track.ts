import { TILE } from "../data/contract";
import { headKey } from "../data/heads";
import type { Feed } from "../data/loader";
import { levelFor, linePath, tileSpan, tokensPerCell } from "../data/tiles";
import { type CanvasTrack, canvasTrackBase } from "./canvas-track";
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
  const top = options.side === "top";

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

    get #scale(): Scale {
      return top ? this._xScale : this._yScale;
    }

    get #length(): number {
      return this.dimensions[top ? 0 : 1];
    }

    get #level(): number {
      const [from, to] = this.#scale.domain();
      return levelFor(scene.facts, this.#length / (to - from));
    }

    get #size(): number {
      return top ? scene.facts.keys : scene.facts.queries;
    }

    #path(z: number, x: number): string {
      const name = top ? "received" : "entropy";
      return linePath(`${headKey(scene.facts.ref)}-${name}-${scene.pool}`, z, x);
    }

    #ask(): void {
      if (!scene.ready || this.#length < 2) return;
      // The mean of everything has no lines of its own.
      if (scene.facts.ref.call === "all") {
        this.#feed.want([]);
        return;
      }
      const z = this.#level;
      const [first, last] = tileSpan(scene.facts, z, ...this.#scale.domain(), this.#size);
      const paths: string[] = [];
      for (let x = first; x <= last; x++) paths.push(this.#path(z, x));
      this.#feed.want(paths.filter((path) => !scene.loader.peek(path)));
    }

    paint(pen: Pen): void {
      if (scene.facts.ref.call === "all") return;
      const z = this.#level;
      const tokens = tokensPerCell(scene.facts.fullZoom, z);
      const scale = this.#scale;
      const [from, to] = scale.domain();
      const depth = this.dimensions[top ? 1 : 0] - 4;
      const first = Math.max(0, Math.floor(from / tokens));
      const last = Math.min(Math.ceil(this.#size / tokens), Math.ceil(to / tokens));
      // One outline, in steps: bars side by side would leave seams.
      const outline: number[] = [];
      const add = (along: number, height: number): void => {
        const away = depth + 2 - height;
        outline.push(...(top ? [along, away] : [away, along]));
      };
      add(scale(first * tokens), 0);
      for (let cell = first; cell < last; cell++) {
        const height = Math.max(0.5, depth * this.#share(z, cell));
        add(scale(cell * tokens), height);
        add(scale((cell + 1) * tokens), height);
      }
      add(scale(last * tokens), 0);
      pen.shape(outline, scene.colours.tint);
    }

    /** How high a cell stands, 0 … 1. */
    #share(z: number, cell: number): number {
      const value = scene.loader.peek(this.#path(z, Math.floor(cell / TILE)))?.[cell % TILE];
      if (value === undefined || Number.isNaN(value)) return 0;
      return top ? receivedShare(value) : entropyShare(value, scene.facts.keys);
    }

    override remove(): void {
      this.#feed.close();
      super.remove();
    }
  }
  return new Line(context, options);
}

/** What keys receive differs by orders of magnitude: from one part in 100,000 to everything. */
function receivedShare(value: number): number {
  return value <= 1e-5 ? 0 : Math.min(1, 1 + Math.log10(value) / 5);
}

function entropyShare(value: number, keys: number): number {
  return Math.max(0, Math.min(1, value / Math.log(Math.max(2, keys))));
}
