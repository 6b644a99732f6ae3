import { paintMap } from "../colours/paint-map";
import { mapScale } from "../colours/scale";
import { drawn, element } from "../dom/element";
import { capitalized, nameOf } from "../look/blocks";
import type { Scene } from "../look/scene";
import { type HeadMap, tokensInCell } from "../page/maps";
import { axisLabels } from "./map-axes";

/** The side of the map, in the units of its picture. */
export const SIDE = 256;
/** Room above it, for half a line of text. */
const TOP = 6;

/** The map of the chosen head, large, with axes; a click chooses the token that looks. */
export class HeadMapView {
  readonly element: HTMLElement;
  readonly #canvas = element("canvas", { class: "map-cells" });
  readonly #cross = drawn("g", { class: "crosshair" });
  readonly #axes = drawn("g", { class: "axes" });
  readonly #picture = drawn("svg", { class: "map-picture", role: "img" });
  readonly #box: HTMLElement;
  #scene: Scene | null = null;
  #painted = "";

  constructor(
    private readonly maps: readonly (readonly HeadMap[])[],
    private readonly mapSize: number,
    pick: (query: number) => void,
  ) {
    this.#picture.append(this.#axes, this.#cross);
    this.#box = element("div", { class: "map-box" }, this.#canvas, this.#picture);
    this.element = element(
      "section",
      { class: "panel map" },
      element(
        "div",
        { class: "panel-head" },
        element("h2", {}, "Map"),
        element("p", { class: "legend" }, "rows look, columns are looked at"),
      ),
      this.#box,
    );
    this.#canvas.addEventListener("click", (event) => {
      const tokens = this.#scene?.edges.queries ?? 0;
      const share = event.offsetY / this.#canvas.clientHeight;
      pick(Math.max(0, Math.min(tokens - 1, Math.floor(share * this.#span(tokens)))));
    });
  }

  show(scene: Scene, dark: boolean): void {
    const map = this.maps[scene.block.index]?.[scene.section];
    this.element.hidden = !map;
    if (!map) return;
    this.#scene = scene;
    const wanted = `${scene.block.index} ${scene.section} ${dark}`;
    if (wanted !== this.#painted) {
      this.#painted = wanted;
      this.#paint(scene, map, dark);
    }
    this.#mark(scene);
  }

  #paint(scene: Scene, map: HeadMap, dark: boolean): void {
    // A whole number of pixels for each cell keeps the cells of a short text alike.
    const pixels = Math.ceil(
      (SIDE * Math.min(2, devicePixelRatio)) / Math.max(map.rows, map.columns),
    );
    this.#canvas.width = map.columns * pixels;
    this.#canvas.height = map.rows * pixels;
    const picture = paintMap(map, mapScale(dark), this.#canvas.width, this.#canvas.height);
    this.#canvas.getContext("2d")?.putImageData(picture, 0, 0);
    const { labels, left, bottom } = axisLabels(scene.block, SIDE);
    this.#axes.replaceChildren(...labels);
    const width = left + SIDE + 2;
    const height = TOP + SIDE + bottom;
    this.#picture.setAttribute("viewBox", `${-left} ${-TOP} ${width} ${height}`);
    this.#box.style.setProperty("--left", `${(100 * left) / width}%`);
    this.#box.style.setProperty("--top", `${(100 * TOP) / height}%`);
    this.#box.style.setProperty("--width", `${(100 * SIDE) / width}%`);
    this.#box.style.setProperty("--height", `${(100 * SIDE) / height}%`);
    this.#box.style.aspectRatio = `${width} / ${height}`;
    const name = capitalized(nameOf(scene.block, scene.section));
    this.#picture.setAttribute(
      "aria-label",
      `${name}: each row is a token that looks, each column one that is looked at`,
    );
  }

  /** A line through the token in question, along its row or its column. */
  #mark(scene: Scene): void {
    if (scene.token === null) {
      this.#cross.replaceChildren();
      return;
    }
    const tokens = scene.direction === "to" ? scene.edges.queries : scene.edges.keys;
    const thick = Math.max(3, SIDE / this.#span(tokens));
    const middle = ((scene.token + 0.5) / this.#span(tokens)) * SIDE;
    const start = Math.max(0, Math.min(SIDE - thick, middle - thick / 2));
    const row = { x: 0, y: start, width: SIDE, height: thick };
    const column = { x: start, y: 0, width: thick, height: SIDE };
    this.#cross.replaceChildren(drawn("rect", scene.direction === "to" ? row : column));
  }

  /** How many tokens the side of the map spans: the last cell may reach beyond the text. */
  #span(tokens: number): number {
    const cell = tokensInCell(tokens, this.mapSize);
    return cell * Math.ceil(tokens / cell);
  }
}
