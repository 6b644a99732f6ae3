import { drawn, element } from "../dom/element";
import { litBy, litPieces, NOTHING, type Scene } from "../look/scene";
import { tintsOfLit, tintsOfMeans } from "../look/tint";
import type { Edges } from "../page/edges";
import { faintCurves, ROW, strongCurves } from "./curves";
import { dashesOf, HeadChips, hueOf } from "./head-chips";
import { LinesColumn } from "./lines-column";
import type { ViewEvents } from "./text-view";

/** Texts with more tokens are shown as running text only. */
export const MOST_TOKENS = 128;

/** Two columns of tokens, queries left and keys right, with a curve for each weight. */
export class LinesView {
  readonly element = element("div", { class: "lines-view" });
  readonly #faint = drawn("g", { class: "faint" });
  readonly #strong = drawn("g", { class: "strong" });
  readonly #picture = drawn(
    "svg",
    { class: "curves", preserveAspectRatio: "none", "aria-hidden": "true" },
    this.#faint,
    this.#strong,
  );
  readonly chips = new HeadChips(() => {
    if (this.#scene) this.show(this.#scene);
  });
  #queries: LinesColumn | null = null;
  #keys: LinesColumn | null = null;
  #scene: Scene | null = null;
  #drawnEdges: Edges | null = null;

  constructor(private readonly events: ViewEvents) {}

  show(scene: Scene): void {
    const before = this.#scene;
    this.#scene = scene;
    if (before?.block.queries !== scene.block.queries || before.block.keys !== scene.block.keys) {
      this.#build(scene);
    }
    if (this.#drawnEdges !== scene.edges) {
      this.#faint.replaceChildren(...faintCurves(scene.edges));
      this.#drawnEdges = scene.edges;
    }
    this.#picture.classList.toggle("all", scene.token === null);
    this.chips.element.hidden = scene.token === null || !isMean(scene);
    this.#showTokens(scene);
  }

  reveal(scene: Scene, all: boolean): void {
    const column = scene.direction === "to" ? this.#queries : this.#keys;
    if (scene.token === null || !column) return;
    column.strip.reveal(scene.token, all);
  }

  #showTokens(scene: Scene): void {
    const queries = this.#queries;
    const keys = this.#keys;
    if (!queries || !keys) return;
    const [chosen, lit] = scene.direction === "to" ? [queries, keys] : [keys, queries];
    chosen.write(NOTHING);
    lit.write(scene.lit);
    if (scene.token === null) {
      this.#strong.replaceChildren();
      queries.strip.choose(null, false);
      keys.strip.choose(null, false);
      queries.strip.tint(new Int8Array(scene.edges.queries));
      keys.strip.tint(tintsOfMeans(scene.edges.received()));
      return;
    }
    this.#strong.replaceChildren(...this.#curves(scene, scene.token));
    lit.strip.choose(null, false);
    lit.strip.tint(tintsOfLit(scene.lit, litPieces(scene).length));
    chosen.strip.choose(scene.token, scene.pinned);
    chosen.strip.tint(
      new Int8Array(scene.direction === "to" ? scene.edges.queries : scene.edges.keys),
    );
  }

  /** The lines of a token; in a mean, those of the single heads, each in its colour. */
  #curves(scene: Scene, token: number): SVGPathElement[] {
    const toKeys = scene.direction === "to";
    if (!isMean(scene)) return strongCurves(scene.lit, token, toKeys);
    const sections = this.chips.show(scene.block);
    const step = Math.min(2, 0.5 * (ROW / sections.length));
    const least = sections.length > 1 ? 0.04 : 0;
    return sections.flatMap((section, index) => {
      const lit = litBy(scene.layer.at(section), scene.direction, token);
      const shift = (index - (sections.length - 1) / 2) * step;
      return strongCurves(lit, token, toKeys, {
        colour: hueOf(section),
        dashes: dashesOf(section),
        shift,
        least,
      });
    });
  }

  #build(scene: Scene): void {
    const { queries, keys, crosses } = scene.block;
    const named = (name: string, role: string): string => (crosses ? `${name} ${role}` : role);
    this.#queries = new LinesColumn(queries, "queries", named(queries.name, "looks"), {
      hover: (token) => this.events.hover(token === null ? null : { token, direction: "to" }),
      pick: (token) => this.events.pick({ token, direction: "to" }),
    });
    this.#keys = new LinesColumn(keys, "keys", named(keys.name, "is looked at"), {
      hover: (token) => this.events.hover(token === null ? null : { token, direction: "from" }),
      pick: (token) => this.events.pick({ token, direction: "from" }),
    });
    const height = ROW * Math.max(queries.pieces.length, keys.pieces.length);
    this.#picture.setAttribute("viewBox", `0 0 100 ${height}`);
    this.#picture.style.height = `${height}px`;
    this.element.replaceChildren(
      element("p", { class: "column-name queries" }, named(queries.name, "looks")),
      element("p", { class: "column-name keys" }, named(keys.name, "is looked at")),
      this.#queries.element,
      this.#picture,
      this.#keys.element,
    );
  }
}

/** Whether the mean of several heads is shown; colours of effects are those of their signs. */
function isMean(scene: Scene): boolean {
  return !scene.edges.signed && scene.section === scene.block.heads && scene.block.heads > 1;
}
