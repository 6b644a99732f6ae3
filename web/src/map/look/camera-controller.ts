import {
  type Box,
  bounded,
  type Camera,
  cameraFor,
  type Domain,
  domainOf,
  type Extent,
  LARGEST,
  moved,
  whole,
  wholeScale,
  zoomed,
} from "./camera";
import { Glide } from "./glide";

type Place = readonly [number, number];

/** Moves the camera: at once, in a short flight or by hand, and never out of the matrix. */
export class CameraController {
  camera: Camera | null = null;
  #box: Box = { width: 0, height: 0 };
  #extent: Extent = { keys: 1, queries: 1 };
  #isWhole = true;
  #wish: Domain | null = null;
  #grabbed: Camera | null = null;
  readonly #glide = new Glide((camera) => this.#apply(camera));

  constructor(
    /** The camera has moved; null is said of the whole matrix. */
    private readonly changed: (camera: Camera, domain: Domain | null) => void,
  ) {}

  get box(): Box {
    return this.#box;
  }

  get domain(): Domain | null {
    return this.camera ? domainOf(this.camera, this.#box) : null;
  }

  /** What would be seen first in a box. */
  firstCamera(box: Box, extent: Extent): Camera {
    return bounded(this.#wish ? cameraFor(this.#wish, box) : whole(box, extent), box, extent);
  }

  /** The map has another size, or another matrix; the whole stays whole. */
  lay(box: Box, extent: Extent): void {
    this.#box = box;
    this.#extent = extent;
    if (!this.camera) this.#apply(this.firstCamera(box, extent));
    else this.#to(this.#isWhole ? whole(box, extent) : this.camera, false);
  }

  /** See a part of the matrix, or the whole. */
  goTo(domain: Domain | null, flying: boolean): void {
    if (!this.camera) this.#wish = domain;
    else this.#to(domain ? cameraFor(domain, this.#box) : whole(this.#box, this.#extent), flying);
  }

  /** Put a pair of tokens into the middle, at the size that tokens have, or at another. */
  centre(key: number, query: number, scale: number | null): void {
    if (!this.camera) return;
    this.#to({ x: key + 0.5, y: query + 0.5, scale: scale ?? this.camera.scale }, true);
  }

  /** Zoom about a place counted from the middle of the map. */
  zoom(factor: number, [x, y]: Place, flying: boolean): void {
    const camera = this.#glide.target ?? this.camera;
    if (camera) this.#to(zoomed(camera, this.#allowed(camera, factor), x, y), flying);
  }

  pan(pixelsX: number, pixelsY: number, flying: boolean): void {
    const camera = (flying ? this.#glide.target : null) ?? this.camera;
    if (camera) this.#to(moved(camera, pixelsX, pixelsY), flying);
  }

  /** Move by a share of what is seen. */
  panBy(shareX: number, shareY: number): void {
    this.pan(shareX * this.#box.width, shareY * this.#box.height, true);
  }

  /** The map is held: what follows counts from how it is now. */
  grab(): void {
    this.#glide.stop();
    this.#grabbed = this.camera;
  }

  /** Drag and size what was grabbed. As it counts from the beginning, edges leave no trace. */
  hold(from: Place, to: Place, factor: number): void {
    const start = this.#grabbed;
    if (!start) return;
    const sized = zoomed(start, this.#allowed(start, factor), ...from);
    this.#to(moved(sized, from[0] - to[0], from[1] - to[1]), false);
  }

  /** The factor nearest to a wish by which tokens may grow. */
  #allowed({ scale }: Camera, factor: number): number {
    const least = wholeScale(this.#box, this.#extent);
    return Math.max(least, Math.min(LARGEST, scale * factor)) / scale;
  }

  #to(wish: Camera, flying: boolean): void {
    const camera = bounded(wish, this.#box, this.#extent);
    if (flying && this.camera) this.#glide.to(this.camera, camera);
    else {
      this.#glide.stop();
      this.#apply(camera);
    }
  }

  #apply(camera: Camera): void {
    this.camera = camera;
    this.#isWhole = camera.scale <= 1.0001 * wholeScale(this.#box, this.#extent);
    this.changed(camera, this.#isWhole ? null : domainOf(camera, this.#box));
  }
}
