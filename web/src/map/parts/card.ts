import { element } from "../../dom/element";
import type { Info } from "../data/contract";
import type { HeadFacts } from "../data/heads";
import { HeadView, type Margins } from "../engine/head-view";
import type { Pair } from "../engine/higlass";
import type { Scene } from "../engine/scene";
import type { Box, Camera, Extent } from "../look/camera";
import { type Finger, listenToPointer, type PointerEvents } from "../look/pointer";
import { measureName } from "./figures";

export interface CardEvents extends PointerEvents {
  readonly close: () => void;
  /** The map has another size. */
  readonly laid: () => void;
  /** All tiles in sight are painted. */
  readonly complete: () => void;
}

/** HiGlass makes a view of twelve rows of whole pixels, which leave up to eleven over. */
const ROUNDING = 12;

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
  #position: Pair = [0, 0];
  #dimensions: Pair = [0, 0];
  #camera: Camera | null = null;
  #extent: Extent;
  #query: number | null = null;
  #pointed: Pointed | null = null;
  #loading = 0;
  #complete = false;

  constructor(shown: Shown, margins: Margins, events: CardEvents) {
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
    this.#body.append(this.#window, engine, this.#glass);
    this.element = element(
      "section",
      { class: "card" },
      element("header", { class: "card-head" }, this.#title, this.#measures, this.#close),
      this.#body,
    );
    listenToPointer(this.#glass, events);
    this.view = new HeadView(
      engine,
      Object.assign(shown, {
        laid: (position: Pair, dimensions: Pair) => {
          this.#position = position;
          this.#dimensions = dimensions;
          events.laid();
        },
        complete: (all: boolean) => {
          this.#complete = all;
          this.#load(!all);
          if (all) events.complete();
        },
      }),
      margins,
    );
  }

  /** The room that the map itself has. */
  get box(): Box {
    return { width: this.#dimensions[0], height: this.#dimensions[1] };
  }

  /** From a place in the element to one that counts from the middle of the map. */
  fromMiddle({ x, y }: Finger): Pair {
    return [
      x - this.#position[0] - this.#dimensions[0] / 2,
      y - this.#position[1] - this.#dimensions[1] / 2,
    ];
  }

  /** Whether the map is as large as its card, and every tile in sight is painted. */
  get isComplete(): boolean {
    const right = this.#position[0] + this.#dimensions[0];
    const bottom = this.#position[1] + this.#dimensions[1];
    const { clientWidth, clientHeight } = this.#body;
    const fits = Math.hypot(right - clientWidth, bottom - clientHeight) <= ROUNDING;
    return fits && this.#complete;
  }

  /** Where the middle of a pair is on the screen. */
  placeOf(key: number, query: number): Pair | null {
    const camera = this.#camera;
    if (!camera) return null;
    const box = this.#body.getBoundingClientRect();
    const middleX = box.left + this.#position[0] + this.#dimensions[0] / 2;
    const middleY = box.top + this.#position[1] + this.#dimensions[1] / 2;
    return [
      middleX + (key + 0.5 - camera.x) * camera.scale,
      middleY + (query + 0.5 - camera.y) * camera.scale,
    ];
  }

  name(info: Info, facts: HeadFacts, alone: boolean): void {
    this.#extent = facts;
    this.#title.textContent = facts.ref.call === "all" ? "All heads, mean" : facts.name;
    this.element.setAttribute("aria-label", `Head ${facts.name}`);
    const { call, head } = facts.ref;
    const figures =
      call === "all" || head === "mean"
        ? []
        : info.measures.flatMap((measure) => {
            const value = facts.call.measures[measure.name]?.[head];
            if (value === null || value === undefined) return [];
            return [`${measure.title} ${measureName(measure, value)}`];
          });
    this.#measures.textContent = figures.join(" · ");
    this.#measures.title = [facts.call.module, ...figures].join("\n");
    this.#close.hidden = alone;
  }

  look(camera: Camera): void {
    this.#camera = camera;
    this.view.look(camera);
    this.#place();
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
    this.view.close();
    this.element.remove();
  }

  /** That tiles are missing is said only if it takes a while. */
  #load(loading: boolean): void {
    clearTimeout(this.#loading);
    if (!loading) this.element.classList.remove("loading");
    else this.#loading = window.setTimeout(() => this.element.classList.add("loading"), 250);
  }

  #place(): void {
    const camera = this.#camera;
    const [left, top] = this.#position;
    const [width, height] = this.#dimensions;
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
    const [left, top] = this.#position;
    const [width, height] = this.#dimensions;
    const start = query === null ? -1 : y(query);
    const thick = Math.max(2, scale);
    this.#row.hidden = query === null || start + thick < 0 || start > height;
    if (!this.#row.hidden) set(this.#row, left, top + start, width, thick);
  }
}

function set(box: HTMLElement, x: number, y: number, width: number, height: number): void {
  box.style.transform = `translate(${x}px, ${y}px)`;
  box.style.width = `${width}px`;
  box.style.height = `${height}px`;
}
