import type { Match } from "../data/search";
import type { Pointed } from "../parts/card";
import type { CameraController } from "./camera-controller";

/** At this size tokens can be read with ease. */
const READING = 18;
/** With the keyboard one moves by this share of what is seen. */
const STEP = 0.15;
/** What was found is shown with so many tokens around it. */
const AROUND = 40;
/** A row that is farther from the edge than this share of what is seen is in sight. */
const EDGE = 0.08;

/** Ways to places of the matrix. */
export class Jumps {
  constructor(private readonly cameraController: CameraController) {}

  step(stepsX: number, stepsY: number): void {
    this.cameraController.panBy(STEP * stepsX, STEP * stepsY);
  }

  /** To a row, unless it is in sight. */
  toRow(query: number): void {
    const { camera, domain } = this.cameraController;
    if (!camera || !domain) return;
    const [top, bottom] = domain.y;
    const margin = EDGE * (bottom - top);
    if (query >= top + margin && query < bottom - margin) return;
    // Keys move along, so that one stays as far from the diagonal as one was.
    this.cameraController.centre(camera.x + query - camera.y, query, null);
  }

  /** To a pair of tokens, near enough to read both. */
  toPair(key: number, query: number | null): void {
    const { camera } = this.cameraController;
    if (query === null || !camera) return;
    this.cameraController.centre(key, query, Math.max(READING, camera.scale));
  }

  /** To the rows of what was found, and to its columns too where a text looks at itself. */
  toMatch([first, last]: Match, itself: boolean): void {
    const { camera, domain } = this.cameraController;
    if (!camera || !domain) return;
    const middle = Math.floor((first + last) / 2);
    const seen = domain.y[1] - domain.y[0];
    const wanted = Math.max(AROUND, 2 * (last - first));
    const near = Math.min(READING, (camera.scale * seen) / wanted);
    const key = itself ? middle : Math.floor(camera.x);
    this.cameraController.centre(key, middle, Math.max(camera.scale, near));
  }

  /** Down to single tokens: where the pointer is, or at the diagonal. */
  deepest(at: Pointed | null, causal: boolean): void {
    const { camera } = this.cameraController;
    if (!camera) return;
    const query = at?.query ?? camera.y;
    const key = at?.key ?? (causal ? camera.y : camera.x);
    this.cameraController.centre(Math.floor(key), Math.floor(query), READING);
  }
}
