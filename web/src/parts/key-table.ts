import { element } from "../dom/element";
import { positionOf } from "../look/blocks";
import { count, inFigures, percent } from "../look/figures";
import { chosenPieces, litText, missingShare, type Scene } from "../look/scene";
import type { PageData, Text } from "../page/contract";
import type { Lit } from "../page/edges";
import { showAround, showPiece } from "../tokens/visible";
import { quoted } from "./quoted";
import { holdsAll, keptInWords } from "./small-print";

/** More rows than anyone reads would only be slow. */
const MOST_ROWS = 40;
/** So many tokens before and after one are its context. */
const AROUND = 3;

/** The chosen token's keys (or queries) in order of weight. */
export class KeyTable {
  readonly element: HTMLElement;
  readonly #caption = element("caption");
  readonly #position = element("th", { scope: "col", class: "number" }, "Position");
  readonly #head = element("thead", {});
  readonly #body = element("tbody");
  readonly #foot = element("tfoot");
  readonly #print = element("p", { class: "small-print" });

  constructor(
    private readonly page: PageData,
    private readonly go: (token: number) => void,
  ) {
    this.#head.append(
      element(
        "tr",
        {},
        element("th", { scope: "col", class: "number rank" }, "Rank"),
        element("th", { scope: "col" }, "Token"),
        this.#position,
        element(
          "th",
          { scope: "col", class: "number" },
          page.largest === null ? "Weight" : "Effect",
        ),
      ),
    );
    const table = element(
      "table",
      { class: "key-table" },
      this.#caption,
      this.#head,
      this.#body,
      this.#foot,
    );
    this.element = element(
      "section",
      { class: "panel table fades", "aria-label": "Table" },
      table,
      this.#print,
    );
    this.#body.addEventListener("click", (event) => {
      const row = event.target instanceof Element ? event.target.closest("tr") : null;
      if (row?.dataset.goto) this.go(Number(row.dataset.goto));
    });
  }

  show(scene: Scene): void {
    this.#head.hidden = scene.token === null;
    this.#print.textContent = keptInWords(this.page, scene);
    if (scene.token === null) {
      this.#caption.textContent = "No token is chosen";
      this.#body.replaceChildren();
      this.#foot.replaceChildren();
      return;
    }
    const token = quoted(chosenPieces(scene)[scene.token]);
    const before = scene.direction === "to" ? "Where " : "Who looks at ";
    this.#caption.replaceChildren(before, token, scene.direction === "to" ? " looks" : "");
    const text = litText(scene);
    const shown = Math.min(MOST_ROWS, scene.lit.tokens.length);
    const rows: HTMLElement[] = [];
    for (let rank = 0; rank < shown; rank++) {
      rows.push(rowOf(text, rank, scene.lit));
    }
    this.#body.replaceChildren(...rows);
    this.#foot.replaceChildren(...this.#footOf(scene, shown));
  }

  #footOf(scene: Scene, shown: number): HTMLElement[] {
    const rows: HTMLElement[] = [];
    const more = scene.lit.tokens.length - shown;
    if (more > 0) rows.push(footRow(`and ${count(more)} more tokens`, ""));
    if (scene.lit.tokens.length === 0) rows.push(footRow("none in this file", ""));
    if (scene.lit.signed) return rows;
    const missing = missingShare(scene.lit);
    const all = holdsAll(this.page, scene) || scene.layer !== scene.whole;
    // Rows of a part, or beside a sink, add up to less than 1 even if all of them is there.
    if (scene.direction === "to" && (!all || missing >= 0.005)) {
      const share = percent(missing);
      const words = all ? "not on these tokens" : "not in this file";
      // The sum of sixteen that are rounded is rounded more than each.
      const rounded = this.page.weight_bits === 8 && /^\d/.test(share);
      rows.push(footRow(rounded ? `${words}, about` : words, share));
    }
    return rows;
  }
}

function rowOf(text: Text, rank: number, lit: Lit): HTMLElement {
  const { pieces } = text;
  const [token, weight] = [lit.tokens[rank] as number, lit.weights[rank] as number];
  const named = quoted(pieces[token]);
  const before = pieces.slice(Math.max(0, token - AROUND), token);
  const own = showPiece(pieces[token] ?? "").before;
  const after = pieces.slice(token + 1, token + 1 + AROUND);
  const button = element(
    "button",
    { type: "button", class: "context", "aria-label": `Go to ${named.textContent}` },
    element("span", { class: "around" }, (showAround(before) + own).trimStart()),
    named,
    element("span", { class: "around" }, showAround(after)),
  );
  const bar = element("span", { class: "bar", "aria-hidden": "true" });
  bar.style.setProperty("--share", String(Math.min(1, Math.abs(weight) / lit.most)));
  bar.classList.toggle("against", weight < 0);
  return element(
    "tr",
    { "data-goto": token },
    element("td", { class: "number rank" }, String(rank + 1)),
    element("th", { scope: "row" }, button),
    element("td", { class: "number" }, String(positionOf(text, token))),
    element("td", { class: "number weight" }, inFigures(weight, lit), bar),
  );
}

function footRow(words: string, figure: string): HTMLElement {
  return element(
    "tr",
    {},
    element("td"),
    element("th", { scope: "row", colspan: 2 }, words),
    element("td", { class: "number" }, figure),
  );
}
