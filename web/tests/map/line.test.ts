import { describe, expect, it } from "vitest";
import { axisColours } from "../../src/map/colours/axis-colours";
import { Loader } from "../../src/map/data/loader";
import type { AxisView } from "../../src/map/engine/draw-axis";
import { drawLine, linesInSight } from "../../src/map/engine/draw-line";
import type { Pen } from "../../src/map/engine/pen";
import type { Scene } from "../../src/map/engine/scene";
import { someFacts } from "./some-info";

const TOP: AxisView = { side: "top", from: 0, to: 1000, length: 500, depth: 24 };
const LEFT: AxisView = { ...TOP, side: "left" };

function sceneOf(loader: Loader, change: Partial<Scene> = {}): Scene {
  const text = { size: 1000, pieces: [], sections: [], marks: [] };
  return {
    facts: someFacts(),
    pool: "max",
    tileset: "c1-h0-max",
    colormap: {
      table: new Uint32Array(),
      range: () => ({ scaling: "log", signed: false, low: 0, high: 1 }),
    },
    colours: axisColours(false),
    keys: text,
    queries: text,
    loader,
    ready: true,
    laid: () => {},
    complete: () => {},
    ...change,
  };
}

function drawn(view: AxisView, scene: Scene): { outline: number[]; words: string[] } {
  let outline: readonly number[] = [];
  const words: string[] = [];
  const pen: Pen = {
    text: (each) => words.push(each),
    rect: () => {},
    measure: () => 0,
    shape: (points) => {
      outline = points;
    },
  };
  drawLine(pen, view, scene);
  return { outline: [...outline], words };
}

function outlineOf(view: AxisView, scene: Scene): number[] {
  return drawn(view, scene).outline;
}

/** A loader that has all of the lines, the same value everywhere. */
async function full(value: number): Promise<Loader> {
  const loader = new Loader(
    async () => new Float32Array(256).fill(value),
    () => {},
  );
  const scene = sceneOf(loader);
  loader.feed(() => {}).want([TOP, LEFT].flatMap((view) => linesInSight(scene, view)));
  while (loader.running > 0) await new Promise((resolve) => setTimeout(resolve));
  return loader;
}

describe("lines", () => {
  it("have a name where there is room", async () => {
    const scene = sceneOf(await full(0.5));
    expect([TOP, LEFT].flatMap((view) => drawn(view, scene).words)).toEqual([
      "received",
      "entropy",
    ]);
    expect(drawn({ ...TOP, depth: 12 }, scene).words).toEqual([]);
  });

  it("are asked for by what they are of, as far as they are in sight", async () => {
    const scene = sceneOf(await full(0));
    expect(linesInSight(scene, TOP)).toEqual([
      "lines/c1-h0-received-max/1/0.bin",
      "lines/c1-h0-received-max/1/1.bin",
    ]);
    expect(linesInSight(scene, { ...LEFT, from: 600 })[0]).toMatch(/entropy-max\/2\/2.bin$/);
  });

  it("are none of the mean of everything", async () => {
    const facts = someFacts({ ref: { call: "all", head: "mean" } });
    const scene = sceneOf(await full(1), { facts });
    expect(linesInSight(scene, TOP)).toEqual([]);
    expect(outlineOf(TOP, scene)).toEqual([]);
  });

  it("stand as high as their values, along the whole axis", async () => {
    // Everything is received: 20 of the 24 pixels, with two to spare on either side.
    const top = outlineOf(TOP, sceneOf(await full(1)));
    expect(top.slice(0, 4)).toEqual([0, 22, 0, 2]);
    expect(top.slice(-4)).toEqual([500, 2, 500, 22]);
    // Half of the largest entropy; x and y change places.
    const left = outlineOf(LEFT, sceneOf(await full(Math.log(1000) / 2)));
    expect(left.slice(0, 4)).toEqual([22, 0, expect.closeTo(12), 0]);
  });
});
