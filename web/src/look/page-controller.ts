import type { FirstLook, PageData } from "../page/contract";
import { inWords } from "../page/errors";
import { type Block, inOrder } from "./blocks";
import { litBy, type Scene, sceneOf } from "./scene";
import { chosenSentences, type Sections } from "./sentences";
import { type Direction, type Hovered, other, type Place, type State, type View } from "./state";
import type { LayerEdges, Weights } from "./weights";

export interface Show {
  /** There is something new to see. */
  readonly scene: (scene: Scene, state: State) => void;
  /** The weights of this head cannot be read. */
  readonly error: (words: string, state: State) => void;
}

/** What is being looked at, and all ways to look at something else. */
export class PageController {
  #layer: LayerEdges | null = null;
  #chosen: Sections | null = null;
  #chosenFor = "";
  #frame = 0;
  #headBeforeMean = 0;
  /** Without a choice of the reader, the token to show first is shown. */
  #suggests: boolean;

  constructor(
    readonly blocks: readonly Block[],
    private readonly weights: Weights,
    private readonly page: PageData,
    private current: State,
    private readonly show: Show,
  ) {
    this.#suggests = current.token === null;
  }

  get state(): State {
    return this.current;
  }

  get block(): Block {
    return this.blocks[this.current.place.block] as Block;
  }

  /** Show what is looked at, loading its weights if need be. */
  async start(): Promise<void> {
    const { place } = this.current;
    const block = this.block;
    let layer: LayerEdges;
    this.#layer = null;
    try {
      layer = await this.weights.load(block);
      layer.at(place.section);
    } catch (error) {
      if (place === this.current.place) this.show.error(inWords(error), this.current);
      return;
    }
    // Meanwhile another head may have been chosen.
    if (place !== this.current.place) return;
    this.#layer = layer;
    if (this.#suggests) {
      this.#suggests = false;
      const token = this.current.direction === "to" ? (this.#first?.token ?? null) : null;
      this.current = { ...this.current, token, pinned: false };
    }
    this.#refresh();
  }

  change(part: Partial<State>): void {
    this.current = { ...this.current, ...part };
    this.#refresh();
  }

  goTo(place: Place): void {
    const before = this.block;
    const after = this.blocks[place.block];
    if (!after) return;
    this.current = { ...this.current, place, hovered: null };
    if (before.queries !== after.queries || before.keys !== after.keys) {
      // The number of a token means nothing in another text.
      this.current = { ...this.current, token: null, pinned: false, direction: "to" };
      this.#suggests = true;
    }
    void this.start();
  }

  hover(hovered: Hovered | null): void {
    this.change({ hovered });
  }

  /** Pin a token, or let it go if it is the pinned one. */
  pick({ token, direction }: Hovered): void {
    const { state } = this;
    const again = state.pinned && state.token === token && state.direction === direction;
    if (again) this.letGo();
    else this.change({ token, direction, pinned: true, hovered: null });
  }

  letGo(): void {
    this.change({ token: null, pinned: false, hovered: null });
  }

  stepToken(step: number): void {
    const length = this.#piecesOf(this.current.direction);
    const { token } = this.current;
    const next = token === null ? (step > 0 ? 0 : length - 1) : token + step;
    if (next < 0 || next >= length) return;
    this.change({ token: next, pinned: true, hovered: null });
  }

  stepLayer(step: number): void {
    const ordered = inOrder(this.blocks);
    const block = ordered[ordered.indexOf(this.block) + step];
    if (!block) return;
    const { section } = this.current.place;
    const mean = section >= this.block.heads;
    this.goTo({ block: block.index, section: mean ? block.heads : Math.min(section, block.heads) });
  }

  stepHead(step: number): void {
    const section = this.current.place.section + step;
    if (section < 0 || section > this.block.heads) return;
    this.goTo({ block: this.current.place.block, section });
  }

  /** The mean of the heads of this layer, and back to the head. */
  toggleMean(): void {
    const { block, section } = this.current.place;
    const { heads } = this.block;
    if (heads === 0) return;
    if (section < heads) this.#headBeforeMean = section;
    this.goTo({
      block,
      section: section < heads ? heads : Math.min(this.#headBeforeMean, heads - 1),
    });
  }

  /** Look the other way. Between two texts the token stands in the other one: the strongest is taken. */
  turn(direction: Direction = other(this.current.direction)): void {
    const { token, direction: before } = this.current;
    if (direction === before) return;
    let next = token;
    if (token !== null && this.block.crosses) {
      const edges = this.#layer?.at(this.current.place.section);
      next = (edges && litBy(edges, before, token).tokens[0]) ?? null;
    }
    this.change({
      direction,
      token: next,
      pinned: this.current.pinned && next !== null,
      hovered: null,
    });
  }

  setView(view: View): void {
    this.change({ view, hovered: null });
  }

  /** Why the shown token and head are shown, if nobody has chosen another one. */
  get why(): string {
    const { pinned, token, direction, place } = this.current;
    const first = this.#first;
    if (!first || pinned || direction === "from") return "";
    const shown = place.block === first.layer && place.section === first.head;
    return shown && token === first.token ? first.why : "";
  }

  /** What to show first of the text that looks. */
  get #first(): FirstLook | undefined {
    const { queries } = this.block;
    return this.page.first.find((one) => this.blocks[one.layer]?.queries === queries);
  }

  /** The edges between the chosen sentences. */
  #sections(layer: LayerEdges): Sections {
    if (this.current.sentences === "all") return layer;
    const wanted = `${this.block.index} ${this.current.sentences}`;
    if (!this.#chosen || wanted !== this.#chosenFor) {
      const { sentence_b_start } = this.page;
      this.#chosen = chosenSentences(layer, this.block, this.current.sentences, sentence_b_start);
      this.#chosenFor = wanted;
    }
    return this.#chosen;
  }

  /** How many tokens could be chosen when controller in a direction. */
  #piecesOf(direction: Direction): number {
    return (direction === "to" ? this.block.queries : this.block.keys).pieces.length;
  }

  /** Show once before the next frame, however much changes until then. */
  #refresh(): void {
    cancelAnimationFrame(this.#frame);
    this.#frame = requestAnimationFrame(() => {
      if (!this.#layer) return;
      const scene = sceneOf(this.current, this.block, this.#sections(this.#layer), this.#layer);
      this.show.scene(scene, this.current);
    });
  }
}
