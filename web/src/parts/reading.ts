import { element } from "../dom/element";
import { positionOf } from "../look/blocks";
import { inFigures } from "../look/figures";
import type { PageController } from "../look/page-controller";
import type { Scene } from "../look/scene";
import { type Direction, type Hovered, SENTENCES, type State, type View } from "../look/state";
import { Headline } from "./headline";
import type { HeadsView } from "./heads-view";
import { LinesView, MOST_TOKENS } from "./lines-view";
import { Switch } from "./switch";
import { TextView } from "./text-view";
import type { Tooltip } from "./tooltip";

/** The middle of the page: which head, which token, and the text as lines or as running text. */
export class Reading {
  readonly element: HTMLElement;
  readonly #headline: Headline;
  readonly #direction: Switch<Direction>;
  readonly #view: Switch<View>;
  readonly #text: TextView;
  readonly #lines: LinesView;
  readonly #linesBox: HTMLElement;
  readonly #sentences = element(
    "select",
    { "aria-label": "Sentences" },
    ...SENTENCES.map((each) => element("option", {}, each)),
  );
  readonly #alert = element("p", { class: "error", role: "alert", hidden: true });
  readonly #body: HTMLElement;
  #scene: Scene | null = null;

  constructor(
    private readonly controller: PageController,
    private readonly heads: HeadsView,
    /** Whether the text is two sentences. */
    private readonly pairs: boolean,
    private readonly tooltip: Tooltip,
  ) {
    this.#headline = new Headline(() => controller.letGo());
    this.#direction = new Switch(
      "direction",
      "Direction",
      [
        { value: "to", name: "Where it looks" },
        { value: "from", name: "Who looks at it" },
      ],
      (direction) => controller.turn(direction),
    );
    this.#view = new Switch(
      "view",
      "View",
      [
        { value: "lines", name: "Lines" },
        { value: "text", name: "Text" },
        { value: "heads", name: "All heads" },
      ],
      (view) => controller.setView(view),
    );
    const events = {
      hover: (hovered: Hovered | null, at?: Element) => this.#hover(hovered, at),
      pick: (picked: Hovered) => controller.pick(picked),
    };
    this.#sentences.addEventListener("change", () => {
      const sentences = SENTENCES.find((each) => each === this.#sentences.value);
      if (sentences) controller.change({ sentences, hovered: null });
    });
    this.#text = new TextView(events);
    this.#lines = new LinesView(events);
    this.#linesBox = element(
      "div",
      { class: "scroller lines-box" },
      this.#lines.chips.element,
      this.#lines.element,
    );
    this.#body = element("div", { class: "reading-body" });
    this.element = element(
      "main",
      { class: "panel reading" },
      this.#headline.element,
      element(
        "div",
        { class: "switches" },
        this.#direction.element,
        this.#view.element,
        this.#sentences,
      ),
      this.#alert,
      this.#body,
    );
  }

  show(scene: Scene, state: State, dark: boolean): void {
    this.#scene = scene;
    this.#alert.hidden = true;
    this.element.dataset.direction = scene.token === null ? "from" : scene.direction;
    this.#headline.show(scene, this.controller.why);
    this.#direction.show(scene.direction);
    this.#sentences.hidden = !this.pairs || scene.block.crosses;
    this.#sentences.value = state.sentences;
    const fits = Math.max(scene.edges.queries, scene.edges.keys) <= MOST_TOKENS;
    const several = scene.block.heads > 0;
    const view = viewFor(state.view, fits, several);
    this.#view.refuse("lines", fits ? "" : `For texts of up to ${MOST_TOKENS} tokens`);
    this.#view.refuse("heads", several ? "" : "For the heads of a layer");
    this.#view.show(view);
    const wanted = { lines: this.#linesBox, text: this.#text.element, heads: this.heads.element };
    if (wanted[view].parentElement !== this.#body) this.#body.replaceChildren(wanted[view]);
    if (view === "lines") this.#lines.show(scene);
    else if (view === "text") this.#text.show(scene);
    else this.heads.show(scene, dark);
  }

  /** Scroll to the chosen token, the page too if `all`. */
  reveal(scene: Scene, state: State, all: boolean): void {
    if (this.#linesBox.isConnected && state.view === "lines") this.#lines.reveal(scene, all);
    else this.#text.reveal(scene, all);
  }

  error(words: string): void {
    this.#alert.textContent = words;
    this.#alert.hidden = false;
    this.#body.replaceChildren();
  }

  repaint(): void {
    this.#text.repaint();
  }

  #hover(hovered: Hovered | null, at: Element | undefined): void {
    this.controller.hover(hovered);
    if (hovered && at && this.#text.element.isConnected) {
      const box = at.getClientRects()[0] ?? at.getBoundingClientRect();
      this.tooltip.show(this.#wordsFor(hovered), box.left - 10, box.bottom - 6);
    } else this.tooltip.hide();
  }

  /** Where a token stands, and what the pinned token has to do with it. */
  #wordsFor({ token, direction }: Hovered): string {
    const scene = this.#scene;
    const text = direction === "to" ? scene?.block.queries : scene?.block.keys;
    const position = `position ${text ? positionOf(text, token) : token}`;
    if (!scene?.pinned || (scene.block.crosses && direction === scene.direction)) return position;
    const rank = scene.lit.tokens.indexOf(token);
    if (rank < 0) return position;
    const kind = scene.lit.signed ? "effect" : "weight";
    return `${position} · ${kind} ${inFigures(scene.lit.weights[rank] as number, scene.lit)}`;
  }
}

/** The wanted view, or another where it is of no use. */
function viewFor(wanted: View, fits: boolean, several: boolean): View {
  if (wanted === "text" || (wanted === "heads" && several)) return wanted;
  return fits ? "lines" : "text";
}
