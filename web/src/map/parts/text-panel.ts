import { element } from "../../dom/element";
import { count, percent } from "../../look/figures";
import { showAlone, showAround } from "../../tokens/visible";
import type { Row } from "../data/contract";
import type { Match } from "../data/search";
import { LongText, type TextEvents } from "./long-text";
import { weightName } from "./readout";

export interface TextPanelEvents extends TextEvents {
  readonly goToKey: (key: number) => void;
  readonly letGo: () => void;
}

/** What the text shows of a chosen query. */
export interface ChosenRow {
  readonly query: number;
  /** Null while it is on its way. */
  readonly row: Row | null;
}

const KEYS_LISTED = 24;
const FOLLOWING = 250;
const BEFORE = 3;
const AFTER = 2;

/** The document beside the map: the chosen query, the keys it looks at, and where words are. */
export class TextPanel {
  readonly element: HTMLElement;
  readonly #text: LongText;
  /** What is looked at, where that is another text. */
  readonly #other: LongText;
  readonly #sentence = element("p", { class: "sentence", "aria-live": "polite" });
  readonly #keys = element("ol", { class: "keys" });
  readonly #rest = element("p", { class: "small-print" });
  readonly #release: HTMLButtonElement;
  readonly #names = [element("h3", { class: "pane-name" }), element("h3", { class: "pane-name" })];
  #queryPieces: readonly string[] = [];
  #keyPieces: readonly string[] = [];
  #chosen: ChosenRow | null = null;
  #matches: readonly Match[] = [];
  #here: Match | null = null;
  #head = "";
  #following = 0;

  constructor(private readonly events: TextPanelEvents) {
    this.#text = new LongText(events);
    this.#other = new LongText({ pick: events.goToKey });
    this.#release = element("button", { type: "button", class: "plain release" }, "Unpin ");
    this.#release.append(element("kbd", { "aria-hidden": "true" }, "Esc"));
    this.#release.addEventListener("click", events.letGo);
    this.element = element(
      "aside",
      { class: "panel text-panel", "aria-label": "Text" },
      element("div", { class: "panel-line" }, this.#sentence, this.#release),
      this.#keys,
      this.#rest,
      this.#names[0] as HTMLElement,
      this.#text.element,
      this.#names[1] as HTMLElement,
      this.#other.element,
    );
    this.#show();
  }

  /** The text that looks and the text that is looked at; most often they are one. */
  setTexts(
    queries: { name: string; pieces: readonly string[] },
    keys: { name: string; pieces: readonly string[] },
  ): void {
    const two = queries.pieces !== keys.pieces;
    if (this.#queryPieces !== queries.pieces) this.#text.set(queries.pieces, queries.name);
    if (two && this.#keyPieces !== keys.pieces) this.#other.set(keys.pieces, keys.name);
    this.#queryPieces = queries.pieces;
    this.#keyPieces = keys.pieces;
    this.#other.element.hidden = !two;
    const words = [`${queries.name}: looks`, `${keys.name}: is looked at`];
    for (const [index, heading] of this.#names.entries()) {
      heading.hidden = !two;
      heading.textContent = words[index] ?? "";
    }
    this.#show();
  }

  /** Show a chosen query in a head that is named as in a sentence. */
  choose(chosen: ChosenRow | null, head: string): void {
    this.#chosen = chosen;
    this.#head = head;
    this.#show();
  }

  mark(matches: readonly Match[], here: Match | null): void {
    this.#matches = matches;
    this.#here = here;
    this.#dress();
  }

  reveal(query: number): void {
    clearTimeout(this.#following);
    this.#text.reveal(query);
  }

  /** Scroll to what the map shows, once it has come to rest. */
  follow(query: number): void {
    clearTimeout(this.#following);
    this.#following = window.setTimeout(() => this.#text.reveal(query), FOLLOWING);
  }

  #show(): void {
    const chosen = this.#chosen;
    this.#release.hidden = chosen === null;
    this.#keys.hidden = !chosen?.row;
    this.#rest.hidden = !chosen?.row;
    this.#sentence.replaceChildren(...this.#words());
    this.#keys.replaceChildren(...this.#items());
    const left = chosen?.row ? restOf(chosen.row) : 0;
    this.#rest.textContent = left > 0 ? `All other keys together: ${percent(left)}` : "";
    this.#dress();
  }

  #words(): (Node | string)[] {
    const chosen = this.#chosen;
    if (!chosen) return ["Choose a token, here or as a row of the map, to see where it looks."];
    const token = quoted(this.#queryPieces[chosen.query] ?? "");
    const key = chosen.row?.keys[0];
    if (!chosen.row) return [token, " …"];
    const place = element("span", { class: "muted" }, ` (${count(chosen.query)})`);
    if (key === undefined) return [token, place, ` looks at nothing in ${this.#head}.`];
    const weight = weightName(chosen.row.weights[0] ?? 0);
    return [
      ...[token, place, " looks most at ", quoted(this.#keyPieces[key] ?? "")],
      element("span", { class: "muted" }, ` (${count(key)})`),
      ` in ${this.#head}: ${weight}.`,
    ];
  }

  #items(): HTMLElement[] {
    const row = this.#chosen?.row;
    if (!row) return [];
    const largest = row.weights[0] ?? 1;
    return row.keys.slice(0, KEYS_LISTED).map((key, rank) => {
      const weight = row.weights[rank] ?? 0;
      const around = element("span", { class: "around" });
      around.append(
        element("bdi", {}, showAround(this.#keyPieces.slice(Math.max(0, key - BEFORE), key))),
        quoted(this.#keyPieces[key] ?? ""),
        element("bdi", {}, showAround(this.#keyPieces.slice(key + 1, key + 1 + AFTER))),
      );
      const bar = element("span", { class: "weight-bar" });
      bar.style.setProperty("--share", String(largest > 0 ? weight / largest : 0));
      const button = element(
        "button",
        { type: "button", "data-key": key },
        around,
        element("span", { class: "key-position" }, count(key)),
        element("span", { class: "key-weight" }, weightName(weight), bar),
      );
      button.addEventListener("click", () => this.events.goToKey(key));
      return element("li", {}, button);
    });
  }

  #dress(): void {
    const one = this.#queryPieces === this.#keyPieces;
    const weights = new Map<number, number>();
    const row = this.#chosen?.row;
    for (const [rank, key] of (row?.keys ?? []).entries()) {
      weights.set(key, Math.sqrt(Math.min(1, row?.weights[rank] ?? 0)));
    }
    const query = this.#chosen?.query ?? -1;
    const here = this.#here;
    const isMatch = finder(this.#matches);
    this.#text.dress((token) => ({
      weight: one ? faintest(weights.get(token) ?? 0) : 0,
      chosen: token === query,
      match: !isMatch(token)
        ? ""
        : here && token >= here[0] && token <= here[1]
          ? "match here"
          : "match",
    }));
    if (one) return;
    this.#other.dress((token) => {
      return { weight: faintest(weights.get(token) ?? 0), chosen: false, match: "" };
    });
  }
}

/** A weight that is listed can be seen. */
function faintest(tint: number): number {
  return tint > 0.01 ? Math.max(0.06, tint) : 0;
}

function restOf(row: Row): number {
  return row.rest + row.weights.slice(KEYS_LISTED).reduce((sum, weight) => sum + weight, 0);
}

/** Whether a token is in one of many matches, which are in order. */
function finder(matches: readonly Match[]): (token: number) => boolean {
  return (token) => {
    let low = 0;
    let high = matches.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((matches[middle] as Match)[1] < token) low = middle + 1;
      else high = middle;
    }
    const match = matches[low];
    return match !== undefined && token >= match[0] && token <= match[1];
  };
}

function quoted(piece: string): HTMLElement {
  return element("bdi", { class: "quoted" }, showAlone(piece));
}
