import { element } from "../../dom/element";
import { own } from "../../dom/own";
import { count } from "../../look/figures";
import type { Info } from "../data/contract";
import type { HeadFacts } from "../data/heads";
import { HeadView } from "../engine/head-view";
import type { Pair } from "../engine/higlass";
import { fills, type Margins, type Room, roomFor } from "../engine/room";
import type { Scene } from "../engine/scene";
import { Sketch } from "../engine/sketch";
import type { Box, Camera, Extent } from "../look/camera";
import { type Finger, listenToPointer, type PointerEvents } from "../look/pointer";
import { measureName } from "./figures";

export interface CardEvents extends PointerEvents {
  readonly close: () => void;
  /** The map has another size. */
  readonly laid: () => void;
  /** All tiles in sight are painted. */
  readonly complete: () => void;
  /** They are painted by the sketch. */
  readonly sketched: () => void;
  /** The engine has taken over. */
  readonly ready: () => void;
}

/** If the engine does not come to paint all tiles, it takes over after so many milliseconds. */
const PATIENCE = 5000;

type Shown = Omit<Scene, "laid" | "complete">;

/** Places on a map, given by tokens: lines through a pair, and a row that is chosen. */
export interface Pointed {
  readonly key: number;
  readonly query: number;
}

/** One head: its name, its measures and its map, with what points at places on it. */
export class MapCard {
  readonly element: HTMLElement;
  readonly view: HeadView;
  readonly #body = element("div", { class: "card-body" });
  readonly #sheet = element("div", { class: "sheet" });
  readonly #window = element("div", { class: "map-window" });
  readonly #glass: HTMLElement;
  readonly #row = element("div", { class: "row-band", hidden: true });
  readonly #across = element("div", { class: "cross across", hidden: true });
  readonly #down = element("div", { class: "cross down", hidden: true });
  readonly #title = element("h2");
  readonly #measures = element("p", { class: "card-measures" });
  readonly #close: HTMLButtonElement;
  /** What is seen until the engine has painted the map. */
  #sketch: Sketch | null;
  #sketched = false;
  readonly #sizes: ResizeObserver;
  #opening: Promise<void> | null = null;
  /** What HiGlass said last of where the map is. */
  #told: Room | null = null;
  #room: Room = { position: [0, 0], dimensions: [0, 0] };
  #camera: Camera | null = null;
  #extent: Extent;
  #query: number | null = null;
  #pointed: Pointed | null = null;
  #loading = 0;
  #complete = false;

  constructor(
    shown: Shown,
    private readonly margins: Margins,
    private readonly events: CardEvents,
  ) {
    this.#extent = shown.facts;
    this.#glass = element("div", {
      class: "glass",
      role: "img",
      "aria-label": "Attention map: rows look, columns are looked at",
    });
    this.#glass.append(this.#row, this.#across, this.#down);
    this.#close = element(
      "button",
      { type: "button", class: "close", "aria-label": "Close this map", title: "Close this map" },
      "×",
    );
    this.#close.addEventListener("click", () => events.close());
    const engine = element("div", { class: "engine" });
    this.#window.append(this.#sheet);
    const scene = Object.assign(shown, {
      laid: (position: Pair, dimensions: Pair) => this.#lay({ position, dimensions }),
      complete: (all: boolean) => this.#completed(all),
    });
    this.#sketch = new Sketch(scene, margins, () => {
      this.#sketched = true;
      events.sketched();
    });
    this.#body.append(this.#window, this.#sketch.element, engine, this.#glass);
    this.element = element(
      "section",
      { class: "card" },
      element("header", { class: "card-head" }, this.#title, this.#measures, this.#close),
      this.#body,
    );
    listenToPointer(this.#glass, events);
    this.view = new HeadView(engine, scene, margins);
    this.#sizes = new ResizeObserver(() => events.laid());
    this.#sizes.observe(this.#body);
  }

  /** Start the engine, once. */
  open(): Promise<void> {
    this.#opening ??= this.view.open().then(
      () => {
        setTimeout(() => this.#handOver(), PATIENCE);
        this.events.laid();
      },
      (error: unknown) => {
        this.#opening = null;
        throw error;
      },
    );
    return this.#opening;
  }

  /** Whether HiGlass has laid the map out. */
  get isLaid(): boolean {
    return this.#told !== null && this.#told === this.#room;
  }

  /** Before HiGlass has, take the room that it will give. */
  expect(): void {
    if (!this.#sketch || this.isLaid) return;
    this.#room = roomFor(this.#body.clientWidth, this.#body.clientHeight, this.margins);
  }

  /** Whether the engine has taken over from the sketch. */
  get isReady(): boolean {
    return this.#sketch === null;
  }

  /** Whether the sketch has painted all tiles in sight. */
  get isSketched(): boolean {
    return this.#sketched;
  }

  /** The room that the map itself has. */
  get box(): Box {
    const [width, height] = this.#room.dimensions;
    return { width, height };
  }

  /** From a place in the element to one that counts from the middle of the map. */
  fromMiddle({ x, y }: Finger): Pair {
    const { position, dimensions } = this.#room;
    return [x - position[0] - dimensions[0] / 2, y - position[1] - dimensions[1] / 2];
  }

  /** Whether the map is as large as its card, and every tile in sight is painted by the engine. */
  get isComplete(): boolean {
    return this.isReady && this.#complete && this.#fits(this.#room);
  }

  /** Where the middle of a pair is on the screen. */
  placeOf(key: number, query: number): Pair | null {
    const camera = this.#camera;
    if (!camera) return null;
    const box = this.#body.getBoundingClientRect();
    const { position, dimensions } = this.#room;
    const middleX = box.left + position[0] + dimensions[0] / 2;
    const middleY = box.top + position[1] + dimensions[1] / 2;
    return [
      middleX + (key + 0.5 - camera.x) * camera.scale,
      middleY + (query + 0.5 - camera.y) * camera.scale,
    ];
  }

  /** How large the card is up to the last key and query in sight, with what is above and left. */
  sizeUpTo(keys: number, queries: number): Pair {
    const { position, dimensions } = this.#room;
    const camera = this.#camera;
    const seen = (axis: 0 | 1, last: number, middle: number): number => {
      const end = (last - middle) * (camera?.scale ?? 0) + dimensions[axis] / 2;
      return position[axis] + Math.min(dimensions[axis], Math.ceil(end));
    };
    return [seen(0, keys, camera?.x ?? 0), seen(1, queries, camera?.y ?? 0)];
  }

  name(info: Info, facts: HeadFacts, alone: boolean): void {
    this.#extent = facts;
    this.#title.textContent = facts.title;
    this.element.setAttribute("aria-label", facts.words);
    const { head } = facts.ref;
    const figures =
      head === "mean"
        ? meansOf(info, facts)
        : info.measures.flatMap((measure) => {
            const value = own(facts.call.measures, measure.name)?.[head];
            if (value === null || value === undefined) return [];
            return [`${measure.title} ${measureName(measure, value)}`];
          });
    this.#measures.textContent = figures.join(" · ");
    const module = facts.ref.call === "all" ? [] : [facts.call.module];
    this.#measures.title = [...module, ...figures].join("\n");
    this.#close.hidden = alone;
  }

  look(camera: Camera): void {
    this.#camera = camera;
    if (this.isLaid) this.view.look(camera);
    this.#sketch?.look(camera, this.#room);
    this.#place();
  }

  /** The scene has another head or other colours. */
  sceneChanged(): void {
    this.view.sceneChanged();
    this.#sketch?.changed();
  }

  /** Only the axes show something else. */
  axesChanged(): void {
    this.view.axesChanged();
    this.#sketch?.changed();
  }

  choose(query: number | null): void {
    this.#query = query;
    this.#place();
  }

  point(at: Pointed | null): void {
    this.#pointed = at;
    this.#place();
  }

  close(): void {
    clearTimeout(this.#loading);
    this.#sizes.disconnect();
    this.#sketch?.remove();
    this.#sketch = null;
    this.view.close();
    this.element.remove();
  }

  #fits(room: Room): boolean {
    return fills(room, this.#body.clientWidth, this.#body.clientHeight);
  }

  #lay(room: Room): void {
    this.#told = room;
    // HiGlass tries some sizes before it comes to the right one; the sketch has it already.
    if (this.#sketch && !this.#fits(room)) return;
    this.#room = room;
    this.events.laid();
  }

  #completed(all: boolean): void {
    this.#complete = all;
    this.#load(!all);
    if (!all) return;
    this.events.complete();
    // Two frames later, what is complete can be seen.
    if (this.#sketch && this.isLaid) {
      requestAnimationFrame(() => requestAnimationFrame(() => this.#handOver()));
    }
  }

  /** What the sketch showed, the engine shows now. */
  #handOver(): void {
    if (!this.#sketch) return;
    this.#sketch.remove();
    this.#sketch = null;
    this.#sizes.disconnect();
    if (this.#told && !this.isLaid) this.#lay(this.#told);
    this.events.ready();
  }

  /** That tiles are missing is said only if it takes a while. */
  #load(loading: boolean): void {
    clearTimeout(this.#loading);
    if (!loading) this.element.classList.remove("loading");
    else this.#loading = window.setTimeout(() => this.element.classList.add("loading"), 250);
  }

  #place(): void {
    const camera = this.#camera;
    const [left, top] = this.#room.position;
    const [width, height] = this.#room.dimensions;
    if (!camera || width <= 0) return;
    set(this.#window, left, top, width, height);
    const x = (key: number): number => (key - camera.x) * camera.scale + width / 2;
    const y = (query: number): number => (query - camera.y) * camera.scale + height / 2;
    const { keys, queries } = this.#extent;
    set(this.#sheet, x(0), y(0), keys * camera.scale, queries * camera.scale);
    this.#placeRow(y, camera.scale);
    const at = this.#pointed;
    const inside = at !== null;
    this.#across.hidden = !inside;
    this.#down.hidden = !inside;
    if (!at) return;
    const thick = Math.max(1, camera.scale);
    const [down, across] = [y(Math.floor(at.query)), x(Math.floor(at.key))];
    const wide = camera.scale >= 4;
    this.#across.classList.toggle("wide", wide);
    this.#down.classList.toggle("wide", wide);
    const placeY = wide ? down : y(at.query);
    const placeX = wide ? across : x(at.key);
    set(this.#across, 0, top + placeY, left + width, wide ? thick : 1);
    set(this.#down, left + placeX, 0, wide ? thick : 1, top + height);
    this.#across.hidden = placeY < -thick || placeY > height;
    this.#down.hidden = placeX < -thick || placeX > width;
  }

  #placeRow(y: (query: number) => number, scale: number): void {
    const query = this.#query;
    const [left, top] = this.#room.position;
    const [width, height] = this.#room.dimensions;
    const start = query === null ? -1 : y(query);
    const thick = Math.max(2, scale);
    this.#row.hidden = query === null || start + thick < 0 || start > height;
    if (!this.#row.hidden) set(this.#row, left, top + start, width, thick);
  }
}

/** What a mean is of; all heads of a model take a while. */
function meansOf(info: Info, { ref, call }: HeadFacts): string[] {
  if (ref.call !== "all") return [`${count(call.heads)} heads`];
  const heads = info.calls.reduce((sum, each) => sum + each.heads, 0);
  const computed = "computed as you zoom in, which takes a while";
  return [`${count(heads)} heads`, ...(info.live ? [computed] : [])];
}

function set(box: HTMLElement, x: number, y: number, width: number, height: number): void {
  box.style.transform = `translate(${x}px, ${y}px)`;
  box.style.width = `${width}px`;
  box.style.height = `${height}px`;
}
