import { Diverging, mostOf } from "../colours/diverging";
import { element } from "../dom/element";
import { effectInFigures, inFigures } from "../look/figures";
import { chosenPieces, litPieces, type Scene } from "../look/scene";
import type { Pair, Vectors } from "../look/vectors";
import type { PageData } from "../page/contract";
import { inWords } from "../page/errors";
import { showAlone } from "../tokens/visible";
import { quoted } from "./quoted";
import type { Tooltip } from "./tooltip";

/** So many dimensions are listed, those that add most by size. */
const LISTED = 8;

/** A pair of tokens, number by number: q, k, and what each dimension adds to the score. */
export class Dimensions {
  readonly element = element("section", {
    class: "panel steps dimensions",
    "aria-label": "Dimensions",
  });
  readonly #body = element("div");
  readonly #select = element("select", { "aria-label": "Other token of the pair" });
  #scene: Scene | null = null;
  #shown = "";
  #dark = false;

  constructor(
    private readonly page: PageData,
    private readonly vectors: Vectors,
    private readonly tooltip: Tooltip,
  ) {
    this.element.append(element("h2", {}, "Dimensions"), this.#body);
    this.#select.addEventListener("change", () => void this.#showPair());
    this.#body.addEventListener("pointermove", (event) => {
      const cell = event.target instanceof Element ? event.target.closest("[data-words]") : null;
      const words = cell?.getAttribute("data-words");
      if (words) this.tooltip.show(words, event.clientX, event.clientY);
      else this.tooltip.hide();
    });
    this.#body.addEventListener("pointerleave", () => this.tooltip.hide());
  }

  show(scene: Scene, dark: boolean): void {
    // A pointer that passes over tokens does not change the pair.
    if (scene.previewed) return;
    const wanted = `${scene.block.index} ${scene.section} ${scene.direction} ${scene.token} ${dark}`;
    if (wanted === this.#shown) return;
    this.#shown = wanted;
    this.#dark = dark;
    this.#scene = scene;
    const pieces = litPieces(scene);
    const options = Array.from(scene.lit.tokens, (token, rank) => {
      const figure = inFigures(scene.lit.weights[rank] as number, scene.lit);
      return element("option", { value: rank }, `${showAlone(pieces[token] ?? "")} ${figure}`);
    });
    this.#select.replaceChildren(...options);
    void this.#showPair();
  }

  async #showPair(): Promise<void> {
    const [scene, shown] = [this.#scene, this.#shown];
    if (!scene) return;
    const rank = Number(this.#select.value);
    const other = scene.lit.tokens[rank];
    if (scene.token === null || other === undefined || scene.section >= scene.block.heads) {
      const words = "Choose a token and a head to see what each dimension adds to a score.";
      this.#body.replaceChildren(element("p", {}, words));
      return;
    }
    const [query, key] = scene.direction === "to" ? [scene.token, other] : [other, scene.token];
    try {
      const pair = await this.vectors.pair(scene.block, scene.section, query, key);
      if (!pair || shown !== this.#shown) return;
      this.#body.replaceChildren(
        this.#sentence(scene, pair, rank),
        this.#strips(pair),
        listOf(pair),
      );
    } catch (error) {
      this.#body.replaceChildren(element("p", { class: "error", role: "alert" }, inWords(error)));
    }
  }

  /** "it → animal: score 3.214 = Σ q · k × 0.177". */
  #sentence(scene: Scene, pair: Pair, rank: number): HTMLElement {
    const facts = this.vectors.factsOf(scene.block);
    const arrow = scene.direction === "to" ? " → " : " ← ";
    const kind = scene.lit.signed ? "effect" : "weight";
    const figure = inFigures(scene.lit.weights[rank] as number, scene.lit);
    const scale = Number((facts?.scale ?? 1).toPrecision(4));
    const bias = facts?.bias ? ", to which the model adds a bias" : "";
    return element(
      "p",
      {},
      quoted(chosenPieces(scene)[scene.token ?? 0]),
      arrow,
      this.#select,
      `: the score ${effectInFigures(pair.score)} is the sum of q × k × ${scale} over ` +
        `${pair.parts.length} dimensions${bias}; its ${kind} is ${figure}. ` +
        "q and k are as the kernel got them, after any rotation by position.",
    );
  }

  /** Three rows of colours, a column for each dimension. */
  #strips(pair: Pair): HTMLElement {
    const { light, dark } = this.page.diverging;
    const most = Math.max(mostOf(pair.query), mostOf(pair.key));
    const rows = [
      ["q", pair.query, most],
      ["k", pair.key, most],
      ["adds", pair.parts, mostOf(pair.parts)],
    ] as const;
    const strips = rows.flatMap(([name, numbers, highest]) => {
      const colours = new Diverging(this.#dark ? dark : light, highest);
      const cells = Array.from(numbers, (number, at) => {
        const cell = element("span", { "data-words": wordsOf(pair, at) });
        colours.paint(cell, number);
        return cell;
      });
      return [element("b", {}, name), element("div", { class: "strip" }, ...cells)];
    });
    return element("div", { class: "strips", "aria-hidden": "true" }, ...strips);
  }
}

function wordsOf({ query, key, parts }: Pair, at: number): string {
  const [q, k, part] = [query[at], key[at], parts[at]].map((one) => effectInFigures(one ?? 0));
  return `dimension ${at}: q ${q}, k ${k}, adds ${part}`;
}

/** The dimensions that add most, all others together, and the sum. */
function listOf(pair: Pair): HTMLElement {
  const order = [...pair.parts.keys()].sort(
    (a, b) => Math.abs(pair.parts[b] ?? 0) - Math.abs(pair.parts[a] ?? 0),
  );
  const first = order.slice(0, LISTED);
  const rest = order.slice(LISTED).reduce((sum, at) => sum + (pair.parts[at] ?? 0), 0);
  const row = (name: string, cells: readonly (number | undefined)[]): HTMLElement =>
    element(
      "tr",
      {},
      element("th", { scope: "row" }, name),
      ...cells.map((one) => element("td", {}, one === undefined ? "" : effectInFigures(one))),
    );
  const heads = ["Dimension", "q", "k", "Adds to the score"];
  const body = first.map((at) => row(String(at), [pair.query[at], pair.key[at], pair.parts[at]]));
  if (order.length > LISTED) {
    body.push(row(`${order.length - LISTED} others`, [undefined, undefined, rest]));
  }
  return element(
    "div",
    { class: "wide", tabindex: 0, role: "region", "aria-label": "Dimensions, table" },
    element(
      "table",
      {},
      element("caption", { class: "unseen" }, "What each dimension adds to the score"),
      element(
        "thead",
        {},
        element("tr", {}, ...heads.map((name) => element("th", { scope: "col" }, name))),
      ),
      element("tbody", {}, ...body),
      element("tfoot", {}, row("Score", [undefined, undefined, pair.score])),
    ),
  );
}
