import type { Camera } from "./camera";

const DURATION = 260;

/** A short flight from one camera to another. */
export class Glide {
  #frame = 0;
  #target: Camera | null = null;

  constructor(private readonly set: (camera: Camera) => void) {}

  /** Where the flight ends, if there is one. */
  get target(): Camera | null {
    return this.#target;
  }

  to(from: Camera, target: Camera): void {
    this.stop();
    if (matchMedia("(prefers-reduced-motion: reduce)").matches || document.hidden) {
      this.set(target);
      return;
    }
    this.#target = target;
    const start = performance.now();
    const step = (now: number): void => {
      const time = Math.min(1, Math.max(0, (now - start) / DURATION));
      if (time >= 1) {
        this.#target = null;
        this.set(target);
        return;
      }
      this.#frame = requestAnimationFrame(step);
      this.set(between(from, target, 1 - (1 - time) ** 3));
    };
    this.#frame = requestAnimationFrame(step);
  }

  stop(): void {
    cancelAnimationFrame(this.#frame);
    this.#target = null;
  }
}

/** A camera on the way: sizes change by factors, and places so that the target comes straight. */
export function between(from: Camera, to: Camera, share: number): Camera {
  const scale = from.scale * (to.scale / from.scale) ** share;
  const factor = Math.abs(to.scale / from.scale - 1) < 1e-6;
  // What is 1 / scale wide on the screen moves evenly.
  const way = factor ? share : (1 / from.scale - 1 / scale) / (1 / from.scale - 1 / to.scale);
  return { x: from.x + (to.x - from.x) * way, y: from.y + (to.y - from.y) * way, scale };
}
