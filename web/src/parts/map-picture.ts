import { mapColours, paintMap } from "../colours/paint-map";
import { drawn, element } from "../dom/element";
import { type Block, capitalized, nameOf, positionOf } from "../look/blocks";
import { inFigures } from "../look/figures";
import type { Scene } from "../look/scene";
import type { PageData, Text } from "../page/contract";
import type { Edges } from "../page/edges";
import { type HeadMap, tokensInCell } from "../page/maps";
import { showAlone } from "../tokens/visible";
import { axisLabels } from "./map-axes";
import type { Tooltip } from "./tooltip";

/** The side of the map, in the units of its picture. */
const SIDE = 256;
/** Room above it, for half a line of text. */
const TOP = 6;

/** What the pointer is over: a query and a key, or the first ones of a cell of several. */
interface Pair {
  readonly query: number;
  readonly key: number;
}

/** The map of a head with axes. It says what is under the pointer; a click chooses a query. */
export class MapPicture {
  readonly element: HTMLElement;
  readonly #canvas = element("canvas", { class: "map-cells" });
  readonly #cross = drawn("g", { class: "crosshair" });
  readonly #axes = drawn("g", { class: "axes" });
  readonly #picture = drawn("svg", { class: "map-picture", role: "img" });
  #edges: Edges | null = null;
  #block: Block | null = null;
  #painted = "";

  constructor(
    private readonly page: PageData,
    tooltip: Tooltip,
    pick: (query: number) => void,
  ) {
    this.#picture.append(this.#axes, this.#cross);
    this.element = element("div", { class: "map-box" }, this.#canvas, this.#picture);
    this.#canvas.addEventListener("click", (event) => pick(this.#pairAt(event).query));
    this.#canvas.addEventListener("pointermove", (event) => {
      tooltip.show(this.#wordsFor(this.#pairAt(event)), event.clientX, event.clientY);
    });
    this.#canvas.addEventListener("pointerleave", () => tooltip.hide());
  }

  show(scene: Scene, section: number, map: HeadMap, dark: boolean): void {
    this.#edges = scene.whole.at(section);
    this.#block = scene.block;
    const wanted = `${scene.block.index} ${section} ${dark}`;
    if (wanted !== this.#painted) {
      this.#painted = wanted;
      this.#paint(scene.block, section, map, dark);
    }
    this.#mark(scene);
  }

  #paint(block: Block, section: number, map: HeadMap, dark: boolean): void {
    // A whole number of pixels for each cell keeps the cells of a short text alike.
    const pixels = Math.ceil(
      (SIDE * Math.min(2, devicePixelRatio)) / Math.max(map.rows, map.columns),
    );
    this.#canvas.width = map.columns * pixels;
    this.#canvas.height = map.rows * pixels;
    const picture = paintMap(
      map,
      mapColours(this.page, dark),
      this.#canvas.width,
      this.#canvas.height,
    );
    this.#canvas.getContext("2d")?.putImageData(picture, 0, 0);
    const { labels, left, bottom } = axisLabels(block, SIDE);
    this.#axes.replaceChildren(...labels);
    const width = left + SIDE + 2;
    const height = TOP + SIDE + bottom;
    this.#picture.setAttribute("viewBox", `${-left} ${-TOP} ${width} ${height}`);
    const { style } = this.element;
    style.setProperty("--left", `${(100 * left) / width}%`);
    style.setProperty("--top", `${(100 * TOP) / height}%`);
    style.setProperty("--width", `${(100 * SIDE) / width}%`);
    style.setProperty("--height", `${(100 * SIDE) / height}%`);
    style.aspectRatio = `${width} / ${height}`;
    const name = capitalized(nameOf(block, section));
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
    const cell = tokensInCell(tokens, this.page.map_size);
    return cell * Math.ceil(tokens / cell);
  }

  #pairAt(event: MouseEvent): Pair {
    const token = (share: number, tokens: number): number =>
      Math.max(0, Math.min(tokens - 1, Math.floor(share * this.#span(tokens))));
    return {
      query: token(event.offsetY / this.#canvas.clientHeight, this.#edges?.queries ?? 1),
      key: token(event.offsetX / this.#canvas.clientWidth, this.#edges?.keys ?? 1),
    };
  }

  /** "it → animal: 0.647", or the positions of a cell and its largest weight in the file. */
  #wordsFor({ query, key }: Pair): string {
    const [block, edges] = [this.#block, this.#edges];
    if (!block || !edges) return "";
    const rows = cellOf(query, tokensInCell(edges.queries, this.page.map_size), edges.queries);
    const columns = cellOf(key, tokensInCell(edges.keys, this.page.map_size), edges.keys);
    const names = `${nameOfCell(block.queries, rows)} → ${nameOfCell(block.keys, columns)}`;
    const weight = edges.largestWithin(rows, columns);
    if (weight === 0) return `${names}: not in this file`;
    const most = rows[1] - rows[0] + columns[1] - columns[0] > 2 ? "largest " : "";
    return `${names}: ${most}${inFigures(weight, edges)}`;
  }
}

/** The first token of the cell that a token is in, and the one after the last. */
function cellOf(token: number, size: number, tokens: number): [number, number] {
  const first = token - (token % size);
  return [first, Math.min(tokens, first + size)];
}

function nameOfCell(text: Text, [first, end]: [number, number]): string {
  if (end - first === 1) return showAlone(text.pieces[first] ?? "");
  return `${positionOf(text, first)}–${positionOf(text, end - 1)}`;
}
