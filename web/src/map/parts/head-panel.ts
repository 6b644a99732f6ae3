import { element } from "../../dom/element";
import { own } from "../../dom/own";
import { count } from "../../look/figures";
import { quoted } from "../../parts/quoted";
import { showAlone } from "../../tokens/visible";
import type { Call, CallLooks, Direction, HeadRef, Info } from "../data/contract";
import { headKey, isThere, nameOfCall, sameHead } from "../data/heads";
import { byLooks, byMeasure, type RankedHead } from "../data/ranking";
import type { Colormap } from "../engine/scene";
import { measureName } from "./figures";
import { weightName } from "./readout";
import { paintThumb } from "./thumb";

export interface HeadPanelEvents {
  readonly choose: (ref: HeadRef, beside: boolean) => void;
  readonly thumbs: (call: number) => Promise<Float32Array>;
  /** Heads are to be sorted by something else. */
  readonly sorted: () => void;
}

/** The chosen token, and the strongest looks from it or at it. */
export interface TokenLooks {
  readonly piece: string;
  /** Null while they are on their way. */
  readonly calls: readonly CallLooks[] | null;
  /** The pieces of a text, by its number. */
  readonly pieces: ReadonlyMap<number, readonly string[]>;
}

const LAYERS = "";
const DIRECTIONS: Readonly<Record<string, Direction>> = { "looks-from": "from", "looks-at": "at" };

/** All heads: layers down and heads across as small maps, or sorted. */
export class HeadPanel {
  readonly element: HTMLElement;
  readonly #body = element("div", { class: "heads-body" });
  readonly #sort: HTMLSelectElement;
  readonly #add: HTMLButtonElement;
  readonly #about = element("p", { class: "small-print" });
  #cells = new Map<string, HTMLElement>();
  #shown: readonly HeadRef[] = [];
  #looks: TokenLooks | null = null;
  #colormap: Colormap | null = null;
  #watcher: IntersectionObserver | null = null;

  constructor(
    private readonly info: Info,
    private readonly events: HeadPanelEvents,
  ) {
    this.#sort = element(
      "select",
      { id: "sorted-by" },
      element("option", { value: LAYERS }, "layers"),
      ...info.measures.map(({ name, title }) => element("option", { value: name }, title)),
    );
    if (info.live) {
      const looks = element("optgroup", { label: "chosen token" });
      looks.append(
        element("option", { value: "looks-from" }, "looks from"),
        element("option", { value: "looks-at" }, "looks at"),
      );
      this.#sort.append(looks);
    }
    this.#sort.addEventListener("change", () => {
      this.#looks = null;
      this.#build();
      events.sorted();
    });
    this.#add = element(
      "button",
      {
        type: "button",
        class: "plain add",
        "aria-pressed": "false",
        "aria-label": "Add beside",
        title: "Show the next head that is chosen beside the others (or choose it with Shift)",
      },
      "+",
      element("span", { class: "roomy" }, " beside"),
    );
    this.#add.addEventListener("click", () => this.#setAdding(!this.#adding));
    this.element = element(
      "section",
      { class: "panel heads", "aria-label": "Heads" },
      element(
        "div",
        { class: "panel-head" },
        element("label", { class: "choice", for: "sorted-by" }, "Heads by ", this.#sort),
        this.#add,
      ),
      this.#about,
      this.#body,
    );
    this.#listen();
  }

  /** Small maps are painted, and fetched, only once they are asked for and in sight. */
  start(colormap: Colormap): void {
    this.#colormap = colormap;
    this.#build();
  }

  /** Whether heads are sorted by looks from the chosen token, or at it. */
  get direction(): Direction | null {
    return DIRECTIONS[this.#sort.value] ?? null;
  }

  /** Sort heads by these looks; null if no token is chosen. */
  showLooks(looks: TokenLooks | null): void {
    this.#looks = looks;
    this.#build();
  }

  show(heads: readonly HeadRef[]): void {
    const moved = !this.#shown[0] || !heads[0] || !sameHead(this.#shown[0], heads[0]);
    this.#shown = heads;
    const keys = heads.map(headKey);
    for (const [key, cell] of this.#cells) {
      const place = keys.indexOf(key);
      cell.setAttribute("aria-selected", String(place >= 0));
      cell.classList.toggle("beside", place > 0);
      cell.tabIndex = place === 0 ? 0 : -1;
    }
    const first = this.#cells.get(keys[0] ?? "");
    if (!first) this.#cells.values().next().value?.setAttribute("tabindex", "0");
    if (moved) first?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }

  get #adding(): boolean {
    return this.#add.getAttribute("aria-pressed") === "true";
  }

  #setAdding(adding: boolean): void {
    this.#add.setAttribute("aria-pressed", String(adding));
  }

  #build(): void {
    this.#watcher?.disconnect();
    this.#cells = new Map();
    const [body, ...about] = this.#content();
    this.#body.replaceChildren(body);
    this.#about.replaceChildren(...about);
    this.#watch();
    this.show(this.#shown);
  }

  /** The heads, and words about their order. */
  #content(): [HTMLElement, ...(Node | string)[]] {
    const { direction } = this;
    const measure = this.info.measures.find(({ name }) => name === this.#sort.value);
    if (measure) {
      const list = this.#list(byMeasure(this.info, measure), ({ value }) => {
        const figure = measureName(measure, value);
        return { figure, words: `${measure.title} ${figure}` };
      });
      return [list, `${measure.title}: ${measure.about}`];
    }
    if (!direction) return [this.#grid(), "Layers down, heads across."];
    if (!this.#looks) return [this.#grid(), "Choose a token to see which heads look most."];
    return this.#looked(this.#looks, direction);
  }

  #looked(
    { piece, calls, pieces }: TokenLooks,
    direction: Direction,
  ): [HTMLElement, ...(Node | string)[]] {
    const list = this.#list(
      byLooks(this.info, calls ?? [], direction),
      ({ value, text, token }) => {
        const figure = weightName(value);
        const other = pieces.get(text)?.[token] ?? "";
        const place = `${showAlone(other)} (${count(token)})`;
        const words = direction === "from" ? `looks at ${place}` : `is where ${place} looks`;
        return { figure, words: `${words}, ${figure}`, other };
      },
    );
    const about = [`Strongest looks ${direction} `, quoted(piece)];
    if (!calls) return [list, ...about, " …"];
    if (calls.length === 0) return [list, "No head looks at this text."];
    return [list, ...about, "; sinks, neighbours and punctuation don't count."];
  }

  #grid(): HTMLElement {
    const most = Math.max(0, ...this.info.calls.map((call) => call.heads));
    const grid = element("div", { class: "thumbs", role: "grid", "aria-label": "Heads" });
    grid.style.setProperty("--heads", String(most + 1));
    const names = Array.from({ length: most }, (_, head) => element("span", {}, String(head)));
    grid.append(
      element("div", { class: "thumb-names", "aria-hidden": "true" }, element("span"), ...names),
    );
    grid.lastElementChild?.append(element("span", {}, "mean"));
    let group = "";
    for (const [index, call] of this.info.calls.entries()) {
      if (call.group !== group) {
        group = call.group;
        grid.append(element("div", { class: "thumb-group" }, group));
      }
      const row = element("div", { class: "thumb-row", role: "row", "data-call": index });
      row.append(element("span", { class: "thumb-label", role: "rowheader" }, call.layer));
      for (let head = 0; head < call.heads; head++) row.append(this.#cell(call, index, head));
      for (let gap = call.heads; gap < most; gap++) row.append(element("span"));
      row.append(this.#cell(call, index, "mean"));
      grid.append(row);
    }
    const all: HeadRef = { call: "all", head: "mean" };
    if (isThere(this.info, all)) {
      const cell = element(
        "button",
        { type: "button", class: "thumb-all", role: "gridcell", "aria-label": "Mean of all heads" },
        "Mean of all heads",
      );
      this.#keep(cell, all);
      grid.append(element("div", { role: "row" }, cell));
    }
    return grid;
  }

  #cell(call: Call, index: number, head: number | "mean"): HTMLElement {
    const ref: HeadRef = { call: index, head };
    const name = `${nameOfCall(call)}.${head}`;
    const there = isThere(this.info, ref);
    const cell = element("button", {
      type: "button",
      class: "thumb",
      role: "gridcell",
      "aria-label": `Head ${name}`,
      title: there ? name : `${name} is not in this publication`,
      disabled: !there,
    });
    if (there) this.#keep(cell, ref);
    return cell;
  }

  #list<Head extends RankedHead>(
    heads: readonly Head[],
    described: (head: Head) => { figure: string; words: string; other?: string },
  ): HTMLElement {
    const largest = Math.max(1e-12, ...heads.map(({ value }) => Math.abs(value)));
    const list = element("div", { class: "ranked", role: "grid", "aria-label": "Heads, sorted" });
    for (const head of heads) {
      const { figure, words, other } = described(head);
      const bar = element("span", { class: "measure-bar" });
      bar.style.setProperty("--share", String(Math.abs(head.value) / largest));
      const cell = element(
        "button",
        {
          type: "button",
          class: "ranked-head",
          role: "gridcell",
          "aria-label": `Head ${head.name}, ${words}`,
          title: other === undefined ? "" : words,
        },
        element("span", { class: "thumb" }),
        element("span", { class: "ranked-name" }, head.name),
        other === undefined ? bar : element("span", { class: "ranked-look" }, quoted(other), bar),
        element("span", { class: "ranked-value" }, figure),
      );
      this.#keep(cell, head.ref);
      list.append(element("div", { role: "row", "data-call": head.ref.call }, cell));
    }
    return list;
  }

  #keep(cell: HTMLElement, ref: HeadRef): void {
    cell.dataset.head = headKey(ref);
    cell.tabIndex = -1;
    this.#cells.set(headKey(ref), cell);
    cell.addEventListener("click", (event) => {
      this.events.choose(ref, event.shiftKey || this.#adding);
      this.#setAdding(false);
    });
  }

  /** Paint rows as they come in sight. */
  #watch(): void {
    const colormap = this.#colormap;
    if (!colormap) return;
    this.#watcher = new IntersectionObserver(
      (entries, watcher) => {
        for (const { target, isIntersecting } of entries) {
          if (!isIntersecting || !(target instanceof HTMLElement)) continue;
          watcher.unobserve(target);
          void this.#paint(target, colormap);
        }
      },
      { root: this.#body, rootMargin: "120px" },
    );
    for (const row of this.#body.querySelectorAll("[data-call]")) this.#watcher.observe(row);
  }

  async #paint(row: HTMLElement, colormap: Colormap): Promise<void> {
    const number = Number(row.dataset.call);
    const call = this.info.calls[number];
    if (!call) return;
    let thumbs: Float32Array;
    try {
      thumbs = await this.events.thumbs(number);
    } catch {
      // The frames stay empty; what is wrong is said where tiles are missing.
      return;
    }
    for (const cell of row.querySelectorAll<HTMLElement>("[data-head]")) {
      const head = cell.dataset.head?.split("-h")[1] ?? "";
      const size = Math.max(call.keys, call.queries);
      const section = head === "mean" ? "mean" : Number(head);
      const holder = cell.querySelector(".thumb") ?? cell;
      holder.replaceChildren(paintThumb(thumbs, section, size, colormap));
    }
  }

  /** Arrows walk through the cells. */
  #listen(): void {
    this.#body.addEventListener("keydown", (event) => {
      const cell = event.target instanceof HTMLElement ? event.target : null;
      const row = cell?.closest("[role=row]");
      if (!cell || !row || event.ctrlKey || event.metaKey || event.altKey) return;
      const place = [...row.querySelectorAll("[data-head]")].indexOf(cell);
      const rows = [...this.#body.querySelectorAll("[role=row]")];
      const steps: Readonly<Record<string, [number, number]>> = {
        ArrowLeft: [0, -1],
        ArrowRight: [0, 1],
        ArrowUp: [-1, 0],
        ArrowDown: [1, 0],
      };
      const step = own(steps, event.key);
      if (!step) return;
      event.preventDefault();
      const cells = rows[rows.indexOf(row) + step[0]]?.querySelectorAll<HTMLElement>("[data-head]");
      cells?.[Math.min(Math.max(0, place + step[1]), cells.length - 1)]?.focus();
    });
  }
}
