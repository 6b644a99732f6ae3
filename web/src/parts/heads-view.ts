import { element } from "../dom/element";
import { capitalized, nameOf } from "../look/blocks";
import { inFigures } from "../look/figures";
import { litBy, litPieces, type Scene } from "../look/scene";
import type { PageData } from "../page/contract";
import type { HeadMap } from "../page/maps";
import { largestInMap, mapColoursInWords } from "./map-legend";
import type { MapPicture } from "./map-picture";
import { quoted } from "./quoted";

interface Tile {
  readonly element: HTMLElement;
  readonly name: HTMLButtonElement;
  readonly note: HTMLElement;
  /** The largest number of the map, which has the strongest colour. */
  readonly most: HTMLElement;
  readonly picture: MapPicture;
}

/** All heads of a layer and their mean, each as a map that can be read. */
export class HeadsView {
  readonly element = element("div", { class: "heads-view" });
  readonly #tiles: Tile[] = [];
  readonly #legend = element("p", { class: "legend" });

  constructor(
    private readonly page: PageData,
    private readonly maps: readonly (readonly HeadMap[])[],
    private readonly newPicture: () => MapPicture,
    private readonly choose: (section: number) => void,
  ) {
    this.#legend.textContent = `Rows look, columns are looked at. ${mapColoursInWords(page)}`;
  }

  show(scene: Scene, dark: boolean): void {
    const maps = this.maps[scene.block.index] ?? [];
    while (this.#tiles.length < maps.length) this.#tiles.push(this.#tile(this.#tiles.length));
    const tiles = this.#tiles.slice(0, maps.length);
    if (this.element.childElementCount !== 1 + maps.length) {
      this.element.replaceChildren(this.#legend, ...tiles.map((tile) => tile.element));
    }
    for (const [section, map] of maps.entries()) {
      const { name, note, most, picture } = tiles[section] as Tile;
      name.textContent = capitalized(nameOf(scene.block, section).replace(/^.*, /, ""));
      name.setAttribute("aria-current", String(section === scene.section));
      note.replaceChildren(...strongestOf(scene, section));
      const largest = largestInMap(this.page, scene, section);
      most.textContent = largest && `largest ${largest}`;
      picture.show(scene, section, map, dark);
    }
  }

  #tile(section: number): Tile {
    const name = element("button", { type: "button", class: "plain" });
    name.addEventListener("click", () => this.choose(section));
    const note = element("p", { class: "legend" });
    const most = element("p", { class: "legend most" });
    const picture = this.newPicture();
    const head = element("div", { class: "panel-head" }, name, note);
    return {
      element: element("div", { class: "head-tile" }, head, picture.element, most),
      name,
      note,
      most,
      picture,
    };
  }
}

/** What the token in question looks at most in a head, or what looks at it. */
function strongestOf(scene: Scene, section: number): (Node | string)[] {
  if (scene.token === null) return [];
  const lit = litBy(scene.layer.at(section), scene.direction, scene.token);
  const token = lit.tokens[0];
  if (token === undefined) return ["–"];
  return [quoted(litPieces(scene)[token]), ` ${inFigures(lit.weights[0] as number, lit)}`];
}
