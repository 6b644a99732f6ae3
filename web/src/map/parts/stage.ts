import { element } from "../../dom/element";
import type { HeadRef, Info, Pool } from "../data/contract";
import { factsOf, type HeadFacts, sameHead, tilesetOf } from "../data/heads";
import type { Loader } from "../data/loader";
import { levelFor, tokensPerCell } from "../data/tiles";
import { type Margins, marginsAlone, marginsAmong } from "../engine/room";
import type { AxisColours, AxisText, Colormap } from "../engine/scene";
import type { Domain } from "../look/camera";
import { CameraController } from "../look/camera-controller";
import { markFirst } from "../look/marks";
import type { Finger } from "../look/pointer";
import { MapCard, type Pointed } from "./card";
import type { Reading } from "./readout";

/** What all maps have in common. */
export interface StageLook {
  readonly heads: readonly HeadRef[];
  readonly pool: Pool;
  readonly colormap: Colormap;
  readonly colours: AxisColours;
  readonly query: number | null;
}

export interface StageEvents {
  /** What is seen has changed; null is the whole. */
  readonly moved: (domain: Domain | null) => void;
  readonly pointed: (at: Pointed | null) => void;
  readonly tapped: (at: Pointed) => void;
  readonly close: (index: number) => void;
  /** All tiles in sight are there. */
  readonly complete: () => void;
  /** The engine is to be started. */
  readonly opening: (open: () => Promise<unknown>) => void;
  readonly axes: (facts: HeadFacts) => { readonly keys: AxisText; readonly queries: AxisText };
}

/** The engine, which keeps the page busy, waits for the first picture so long at most. */
const PATIENCE = 1000;

/** The maps, one to four, which move together. */
export class Stage {
  readonly element = element("main", { class: "stage", "aria-label": "Maps" });
  readonly #cards: MapCard[] = [];
  #look: StageLook | null = null;
  /** Which margins the maps have. */
  #form = "";
  #laying = 0;
  #pointed: Pointed | null = null;
  #opened = false;
  readonly cameraController: CameraController;

  constructor(
    private readonly info: Info,
    private readonly loader: Loader,
    private readonly events: StageEvents,
  ) {
    this.cameraController = new CameraController((camera, domain) => {
      for (const card of this.#cards) card.look(camera);
      this.events.moved(domain);
    });
    addEventListener("resize", () => {
      for (const card of this.#cards) card.view.sharpen();
    });
  }

  /** The maps that are shown, in order. */
  get cards(): readonly MapCard[] {
    return this.#cards;
  }

  /** How many tokens a cell of the first map covers in each direction. */
  get tokensPerCell(): number {
    const { camera } = this.cameraController;
    const facts = this.#facts;
    return facts && camera ? tokensPerCell(facts.fullZoom, levelFor(facts, camera.scale)) : 1;
  }

  show(look: StageLook): void {
    const before = this.#look;
    this.#look = look;
    const shown = look.heads.flatMap((ref) => factsOf(this.info, ref) ?? []);
    this.#arrange(shown);
    const kept = this.#cards.length;
    for (const [index, facts] of shown.entries()) {
      const card = this.#cards[index] ?? this.#add(facts, look);
      this.#update(card, facts, look, before);
      card.name(this.info, facts, shown.length === 1);
      card.choose(look.query);
    }
    if (before && before.heads.length !== look.heads.length) {
      for (const card of this.#cards) card.view.resized();
    }
    if (before && kept === shown.length) return;
    this.#laid();
    if (this.#opened) this.open();
    else if (!before) setTimeout(() => this.#openOnce(), PATIENCE);
  }

  /** Start the engine in every map that is without. */
  open(): void {
    this.#opened = true;
    this.events.opening(() => Promise.all(this.#cards.map((card) => card.open())));
  }

  /** The texts along the axes, or what is marked on them, have changed. */
  axesChanged(): void {
    for (const card of this.#cards) {
      Object.assign(card.view.scene, this.events.axes(card.view.scene.facts));
      card.axesChanged();
    }
  }

  /** What each map has at a pair of tokens. */
  readings(at: Pointed): Reading[] {
    return this.#cards.map((card) => ({
      name: card.view.scene.facts.name,
      cell: card.view.valueAt(at.key, at.query),
    }));
  }

  /** The first map's head. */
  get #facts(): HeadFacts | null {
    return this.#cards[0]?.view.scene.facts ?? null;
  }

  /** Close the maps that are too many, or all if they are to have other margins. */
  #arrange(shown: readonly HeadFacts[]): void {
    const texts = new Set(shown.map(({ call }) => `${call.queryText} ${call.keyText}`));
    const form =
      shown.length === 1 ? "alone" : shown.length > 2 && texts.size === 1 ? "sharing" : "several";
    const kept = form === this.#form ? shown.length : 0;
    this.#form = form;
    this.element.dataset.maps = String(shown.length);
    this.element.classList.toggle("sharing", form === "sharing");
    while (this.#cards.length > kept) this.#cards.pop()?.close();
  }

  #margins(index: number): Margins {
    if (this.#form === "alone") return marginsAlone(innerWidth, innerHeight);
    return marginsAmong(index, this.#form === "sharing", innerWidth, innerHeight);
  }

  #add(facts: HeadFacts, look: StageLook): MapCard {
    const index = this.#cards.length;
    const margins = this.#margins(index);
    const card = new MapCard(
      {
        facts,
        pool: look.pool,
        tileset: tilesetOf(facts.ref, look.pool),
        colormap: look.colormap,
        colours: look.colours,
        loader: this.loader,
        ready: false,
        ...this.events.axes(facts),
      },
      margins,
      {
        close: () => this.events.close(this.#cards.indexOf(card)),
        laid: () => this.#laidSoon(),
        complete: () => this.events.complete(),
        sketched: () => this.#sketched(),
        ready: () => this.#ready(),
        zoom: (factor, place) => this.cameraController.zoom(factor, card.fromMiddle(place), false),
        pan: (x, y) => this.cameraController.pan(x, y, false),
        grab: () => this.cameraController.grab(),
        hold: (from, to, factor) => {
          this.cameraController.hold(card.fromMiddle(from), card.fromMiddle(to), factor);
        },
        hover: (place) => this.#hover(place && this.#under(card, place)),
        tap: (place, touching) => {
          const at = this.#under(card, place);
          if (touching) this.#hover(at);
          if (at) this.events.tapped(at);
        },
      },
    );
    this.#cards[index] = card;
    this.element.append(card.element);
    return card;
  }

  #update(card: MapCard, facts: HeadFacts, look: StageLook, before: StageLook | null): void {
    const { scene } = card.view;
    const same =
      sameHead(scene.facts.ref, facts.ref) &&
      scene.pool === look.pool &&
      scene.colormap === look.colormap &&
      scene.colours === look.colours;
    if (same && before) return;
    Object.assign(scene, {
      facts,
      pool: look.pool,
      tileset: tilesetOf(facts.ref, look.pool),
      colormap: look.colormap,
      colours: look.colours,
      ...this.events.axes(facts),
    });
    card.sceneChanged();
    // It may be a matrix of another size.
    this.#laidSoon();
  }

  /** The token pair under a place of a card; on the left axis, the row is what counts. */
  #under(card: MapCard, place: Finger): Pointed | null {
    const { camera, box } = this.cameraController;
    const facts = this.#facts;
    if (!camera || !facts) return null;
    const [x, y] = card.fromMiddle(place);
    if (Math.abs(y) > box.height / 2 || x > box.width / 2) return null;
    const query = camera.y + y / camera.scale;
    const key = camera.x + Math.max(x, -box.width / 2) / camera.scale;
    if (query < 0 || query >= facts.queries || key >= facts.keys) return null;
    return key >= 0 || x < -box.width / 2 ? { key: Math.max(0, key), query } : null;
  }

  #hover(at: Pointed | null): void {
    if (!at && !this.#pointed) return;
    this.#pointed = at;
    for (const card of this.#cards) card.point(at);
    this.events.pointed(at);
  }

  /** HiGlass lays tracks out one by one; when all are, the camera is set. */
  #laidSoon(): void {
    clearTimeout(this.#laying);
    this.#laying = window.setTimeout(() => this.#laid());
  }

  #laid(): void {
    const facts = this.#facts;
    for (const card of this.#cards) card.expect();
    // What is whole is so in the smallest of them.
    const width = Math.min(...this.#cards.map(({ box }) => box.width));
    const height = Math.min(...this.#cards.map(({ box }) => box.height));
    if (!facts || width < 10 || height < 10) return;
    for (const card of this.#cards) {
      if (card.isLaid) card.view.scene.ready = true;
    }
    this.cameraController.lay({ width, height }, facts);
  }

  /** What sketches have drawn in this frame is seen after it. */
  #sketched(): void {
    if (!this.#cards.every((card) => card.isSketched)) return;
    setTimeout(() => {
      markFirst("regard:first-picture");
      this.#openOnce();
    });
  }

  /** The first picture is there, or has been waited for: now the engine. */
  #openOnce(): void {
    if (!this.#opened) this.open();
  }

  #ready(): void {
    if (!this.#cards.every((card) => card.isReady)) return;
    markFirst("regard:first-picture");
    markFirst("regard:ready");
  }
}
