import { element } from "../../dom/element";
import type { HeadRef, Info, Pool } from "../data/contract";
import { factsOf, type HeadFacts, sameHead, tilesetOf } from "../data/heads";
import type { Feed, Loader } from "../data/loader";
import { isEmptyTile, levelFor, tilePath, tilesInSight, tokensPerCell } from "../data/tiles";
import type { Margins } from "../engine/head-view";
import type { AxisColours, AxisText, Paintwork } from "../engine/scene";
import { type Domain, domainOf } from "../look/camera";
import { Pilot } from "../look/pilot";
import type { Finger } from "../look/pointer";
import { MapCard, type Pointed } from "./card";
import type { Reading } from "./readout";

/** What all maps have in common. */
export interface StageLook {
  readonly heads: readonly HeadRef[];
  readonly pool: Pool;
  readonly paintwork: Paintwork;
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
  readonly axes: (facts: HeadFacts) => { readonly keys: AxisText; readonly queries: AxisText };
}

const ROOMY: Margins = { top: 74, left: 96, line: 26 };
const NARROW: Margins = { top: 58, left: 62, line: 16 };
/** About how much room a card keeps for its title and its edges. */
const FRAME = { width: 12, height: 44 };

/** The maps, one to four, which move together. */
export class Stage {
  readonly element = element("main", { class: "stage", "aria-label": "Maps" });
  readonly #cards: MapCard[] = [];
  #look: StageLook | null = null;
  #laying = 0;
  #pointed: Pointed | null = null;
  readonly #ahead: Feed;
  readonly pilot: Pilot;

  constructor(
    private readonly info: Info,
    private readonly loader: Loader,
    private readonly events: StageEvents,
  ) {
    this.#ahead = loader.feed(() => {});
    this.pilot = new Pilot((camera, domain) => {
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
    const { camera } = this.pilot;
    const facts = this.#facts;
    return facts && camera ? tokensPerCell(facts.fullZoom, levelFor(facts, camera.scale)) : 1;
  }

  show(look: StageLook): void {
    const before = this.#look;
    this.#look = look;
    this.element.dataset.maps = String(look.heads.length);
    while (this.#cards.length > look.heads.length) this.#cards.pop()?.close();
    for (const [index, ref] of look.heads.entries()) {
      const facts = factsOf(this.info, ref);
      if (!facts) continue;
      const card = this.#cards[index] ?? this.#add(facts, look);
      this.#update(card, facts, look, before);
      card.name(this.info, facts, look.heads.length === 1);
      card.choose(look.query);
    }
    if (before && before.heads.length !== look.heads.length) {
      for (const card of this.#cards) card.view.resized();
    }
  }

  /** The texts along the axes, or what is marked on them, have changed. */
  axesChanged(): void {
    for (const card of this.#cards) {
      Object.assign(card.view.scene, this.events.axes(card.view.scene.facts));
      card.view.axesChanged();
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

  #add(facts: HeadFacts, look: StageLook): MapCard {
    const margins = Math.min(innerWidth, innerHeight) < 560 ? NARROW : ROOMY;
    const index = this.#cards.length;
    const card = new MapCard(
      {
        facts,
        pool: look.pool,
        tileset: tilesetOf(facts.ref, look.pool),
        paintwork: look.paintwork,
        colours: look.colours,
        loader: this.loader,
        ready: false,
        ...this.events.axes(facts),
      },
      margins,
      {
        close: () => this.events.close(this.#cards.indexOf(card)),
        laid: () => this.#laidSoon(),
        complete: () => {
          this.#ahead.want([]);
          this.events.complete();
        },
        zoom: (factor, place) => this.pilot.zoom(factor, card.fromMiddle(place), false),
        pan: (x, y) => this.pilot.pan(x, y, false),
        grab: () => this.pilot.grab(),
        hold: (from, to, factor) => {
          this.pilot.hold(card.fromMiddle(from), card.fromMiddle(to), factor);
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
    if (!this.pilot.camera && look.heads.length === 1) this.#fetchAhead(facts, look, margins);
    void card.view.open().then(() => this.#laidSoon());
    return card;
  }

  #update(card: MapCard, facts: HeadFacts, look: StageLook, before: StageLook | null): void {
    const { scene } = card.view;
    const same =
      sameHead(scene.facts.ref, facts.ref) &&
      scene.pool === look.pool &&
      scene.paintwork === look.paintwork &&
      scene.colours === look.colours;
    if (same && before) return;
    Object.assign(scene, {
      facts,
      pool: look.pool,
      tileset: tilesetOf(facts.ref, look.pool),
      paintwork: look.paintwork,
      colours: look.colours,
      ...this.events.axes(facts),
    });
    card.view.sceneChanged();
    // It may be a matrix of another size.
    this.#laidSoon();
  }

  /** The token pair under a place of a card; on the left axis, the row is what counts. */
  #under(card: MapCard, place: Finger): Pointed | null {
    const { camera, box } = this.pilot;
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

  /** While HiGlass is being set up, the tiles that will be seen first can come already. */
  #fetchAhead(facts: HeadFacts, look: StageLook, margins: Margins): void {
    const { width, height } = this.element.getBoundingClientRect();
    const box = {
      width: width - margins.left - margins.line - FRAME.width,
      height: height - margins.top - margins.line - FRAME.height,
    };
    if (box.width < 10 || box.height < 10) return;
    const camera = this.pilot.firstCamera(box, facts);
    const tileset = tilesetOf(facts.ref, look.pool);
    const places = tilesInSight(facts, levelFor(facts, camera.scale), domainOf(camera, box));
    const needed = places.filter((place) => !isEmptyTile(facts, place));
    this.#ahead.want(needed.map((place) => tilePath(tileset, place)));
  }

  #laid(): void {
    const first = this.#cards[0];
    const facts = this.#facts;
    if (!first || !facts || first.box.width < 10 || first.box.height < 10) return;
    for (const card of this.#cards) card.view.scene.ready = true;
    this.pilot.lay(first.box, facts);
  }
}
