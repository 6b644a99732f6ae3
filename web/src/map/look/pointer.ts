/** What can be done to a map by mouse, pen or finger; places are within the element. */
export interface PointerEvents {
  readonly zoom: (factor: number, place: Finger) => void;
  readonly pan: (pixelsX: number, pixelsY: number) => void;
  /** The map is held, by one finger or two: what follows counts from how it is now. */
  readonly grab: () => void;
  /** What was at one place when it was grabbed is now at another, and larger by a factor. */
  readonly hold: (from: Finger, to: Finger, factor: number) => void;
  readonly hover: (place: Finger | null) => void;
  readonly tap: (place: Finger, touching: boolean) => void;
}

/** A place within the element. */
export interface Finger {
  readonly x: number;
  readonly y: number;
}

/** Where fingers are together, and how far they are apart. */
interface Grip {
  readonly middle: Finger;
  readonly spread: number;
}

/** Within so many pixels, pressing and letting go is a tap. */
const STILL = 5;
/** A notch of a wheel is a factor of about 1.25. */
const WHEEL = 0.0022;
const LINE = 16;

/** Listen to an element that lies over a map. */
export function listenToPointer(element: HTMLElement, events: PointerEvents): void {
  const fingers = new Map<number, Finger>();
  let travelled = 0;
  let start: Grip | null = null;

  const placeOf = (event: MouseEvent): Finger => {
    const box = element.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };
  const grab = (): void => {
    start = gripOf(fingers);
    events.grab();
  };

  element.addEventListener(
    "wheel",
    (event) => {
      event.preventDefault();
      const unit = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? LINE : 1;
      // Two fingers on a touchpad that pinch arrive as a wheel with Ctrl, in small steps.
      const speed = event.ctrlKey ? 4 * WHEEL : WHEEL;
      if (event.shiftKey) events.pan((event.deltaX + event.deltaY) * unit, 0);
      else events.zoom(Math.exp(-event.deltaY * unit * speed), placeOf(event));
    },
    { passive: false },
  );

  element.addEventListener("pointerdown", (event) => {
    if (event.pointerType === "mouse" && event.button !== 0) return;
    try {
      element.setPointerCapture(event.pointerId);
    } catch {
      // The pointer may be gone already.
    }
    if (fingers.size === 0) travelled = 0;
    fingers.set(event.pointerId, placeOf(event));
    if (fingers.size > 1) travelled = Number.POSITIVE_INFINITY;
    grab();
    element.classList.add("pressed");
  });

  element.addEventListener("pointermove", (event) => {
    const place = placeOf(event);
    const before = fingers.get(event.pointerId);
    if (event.pointerType !== "touch") events.hover(place);
    if (!before || !start) return;
    fingers.set(event.pointerId, place);
    travelled += Math.hypot(place.x - before.x, place.y - before.y);
    if (travelled <= STILL) return;
    const { middle, spread } = gripOf(fingers);
    const factor = spread > 0 && start.spread > 0 ? spread / start.spread : 1;
    events.hold(start.middle, middle, factor);
  });

  const release = (event: PointerEvent, counts: boolean): void => {
    if (!fingers.delete(event.pointerId)) return;
    if (fingers.size > 0) {
      grab();
      return;
    }
    start = null;
    element.classList.remove("pressed");
    if (counts && travelled <= STILL) {
      events.tap(placeOf(event), event.pointerType === "touch");
    }
  };
  element.addEventListener("pointerup", (event) => release(event, true));
  element.addEventListener("pointercancel", (event) => release(event, false));
  element.addEventListener("pointerleave", () => events.hover(null));
  element.addEventListener("dblclick", (event) => {
    events.zoom(event.shiftKey ? 0.5 : 2, placeOf(event));
  });
}

function gripOf(fingers: ReadonlyMap<number, Finger>): Grip {
  const [one, other] = [...fingers.values()];
  if (!one) return { middle: { x: 0, y: 0 }, spread: 0 };
  if (!other) return { middle: one, spread: 0 };
  return {
    middle: { x: (one.x + other.x) / 2, y: (one.y + other.y) / 2 },
    spread: Math.hypot(one.x - other.x, one.y - other.y),
  };
}
