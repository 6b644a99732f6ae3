/** What part of the matrix is seen: the pair in the middle, and how large a token is. */
export interface Camera {
  readonly x: number;
  readonly y: number;
  /** Pixels per token, the same in both directions. */
  readonly scale: number;
}

/** The part of the screen that a map has, in CSS pixels. */
export interface Box {
  readonly width: number;
  readonly height: number;
}

/** How large a matrix is. */
export interface Extent {
  readonly keys: number;
  readonly queries: number;
}

/** First and last place of both axes that are seen. */
export interface Domain {
  readonly x: readonly [number, number];
  readonly y: readonly [number, number];
}

/** A token never grows larger than this. */
export const LARGEST = 44;
/** Around the whole matrix, a little is left free. */
const MARGIN = 0.98;

export function wholeScale(box: Box, extent: Extent): number {
  const fitting = Math.min(box.width / extent.keys, box.height / extent.queries);
  return Math.min(LARGEST, MARGIN * fitting);
}

export function whole(box: Box, extent: Extent): Camera {
  return bounded({ x: 0, y: 0, scale: 0 }, box, extent);
}

/** The camera that is nearest to a wish and does not leave the matrix. */
export function bounded(wish: Camera, box: Box, extent: Extent): Camera {
  const scale = Math.max(wholeScale(box, extent), Math.min(LARGEST, wish.scale));
  return {
    x: within(wish.x, box.width / scale, extent.keys),
    y: within(wish.y, box.height / scale, extent.queries),
    scale,
  };
}

/** Where the middle may be: the matrix fills the screen, or begins where its axes are. */
function within(middle: number, seen: number, size: number): number {
  // A little of what is outside may be seen, so that the edge can be told from a cut.
  const slack = ((1 - MARGIN) / 2) * seen;
  const first = seen / 2 - slack;
  const room = size - seen + 2 * slack;
  return room <= 0 ? first : Math.max(first, Math.min(first + room, middle));
}

/** Grow or shrink about a point of the screen, given from the middle of the map. */
export function zoomed(camera: Camera, factor: number, fromX: number, fromY: number): Camera {
  const scale = camera.scale * factor;
  return {
    x: camera.x + fromX / camera.scale - fromX / scale,
    y: camera.y + fromY / camera.scale - fromY / scale,
    scale,
  };
}

export function moved(camera: Camera, pixelsX: number, pixelsY: number): Camera {
  return { ...camera, x: camera.x + pixelsX / camera.scale, y: camera.y + pixelsY / camera.scale };
}

export function domainOf(camera: Camera, box: Box): Domain {
  const halfX = box.width / camera.scale / 2;
  const halfY = box.height / camera.scale / 2;
  return {
    x: [camera.x - halfX, camera.x + halfX],
    y: [camera.y - halfY, camera.y + halfY],
  };
}

/** The camera that sees a part of the matrix whole. */
export function cameraFor(domain: Domain, box: Box): Camera {
  const [x0, x1] = domain.x;
  const [y0, y1] = domain.y;
  return {
    x: (x0 + x1) / 2,
    y: (y0 + y1) / 2,
    scale: Math.min(box.width / (x1 - x0), box.height / (y1 - y0)),
  };
}
