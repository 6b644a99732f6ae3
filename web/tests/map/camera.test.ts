import { describe, expect, it } from "vitest";
import {
  bounded,
  cameraFor,
  domainOf,
  LARGEST,
  moved,
  whole,
  zoomed,
} from "../../src/map/look/camera";
import { between } from "../../src/map/look/glide";

const BOX = { width: 800, height: 400 };
const EXTENT = { keys: 1000, queries: 1000 };

describe("the camera", () => {
  it("sees the whole matrix, which begins where its axes are", () => {
    const { x, y } = domainOf(whole(BOX, EXTENT), BOX);
    expect(y[0]).toBeLessThan(0);
    expect(y[1]).toBeGreaterThan(1000);
    expect(x[0]).toBeGreaterThan(-0.05 * (x[1] - x[0]));
    expect(x[0]).toBeLessThan(0);
  });

  it.each([
    [{ x: -9999, y: 500, scale: 8 }],
    [{ x: 9999, y: 9999, scale: 8 }],
    [{ x: 500, y: -1, scale: 0.0001 }],
    [{ x: 500, y: 500, scale: 1e9 }],
  ])("does not leave the matrix: %o", (wish) => {
    const camera = bounded(wish, BOX, EXTENT);
    const { x, y } = domainOf(camera, BOX);
    for (const [from, to] of [x, y]) {
      const outside = Math.max(0, -from) + Math.max(0, to - 1000);
      const most = Math.max(0.02 * (to - from), to - from - 1000);
      expect(outside).toBeLessThanOrEqual(most + 1e-9);
    }
    expect(camera.scale).toBeLessThanOrEqual(LARGEST);
  });

  it("keeps the place under the pointer while it zooms", () => {
    const before = { x: 300, y: 400, scale: 2 };
    const after = zoomed(before, 3, 100, -50);
    expect(after.scale).toBe(6);
    expect(after.x + 100 / 6).toBeCloseTo(300 + 50);
    expect(after.y - 50 / 6).toBeCloseTo(400 - 25);
  });

  it("moves by pixels", () => {
    expect(moved({ x: 1, y: 2, scale: 4 }, 8, -4)).toEqual({ x: 3, y: 1, scale: 4 });
  });

  it("comes back to what was seen", () => {
    const camera = { x: 321.5, y: 123.25, scale: 7 };
    const again = cameraFor(domainOf(camera, BOX), BOX);
    expect(again.x).toBeCloseTo(camera.x, 9);
    expect(again.y).toBeCloseTo(camera.y, 9);
    expect(again.scale).toBeCloseTo(camera.scale, 9);
  });

  it("flies from one place to another", () => {
    const [from, to] = [
      { x: 0, y: 0, scale: 1 },
      { x: 100, y: 50, scale: 16 },
    ];
    expect(between(from, to, 0)).toEqual(from);
    const end = between(from, to, 1);
    expect([end.x, end.y, end.scale]).toEqual([100, 50, 16]);
    expect(between(from, to, 0.5).scale).toBeCloseTo(4);
    expect(between(from, { ...from, x: 8 }, 0.5).x).toBe(4);
  });
});
