import { element } from "../../dom/element";
import { isBlank, showPiece } from "../../tokens/visible";
import { type Chunk, cut } from "./chunks";

/** How a token is shown. */
export interface TokenLook {
  /** Tint, 0 … 1. */
  readonly weight: number;
  readonly chosen: boolean;
  readonly match: "" | "match" | "match here";
}

export interface TextEvents {
  readonly pick: (token: number) => void;
}

const LINE = 28;
const LETTERS_WIDE = 8.2;
const AHEAD = 600;

/** A text of any length as running text: only what is in sight is in the page. */
export class LongText {
  readonly element = element("div", { class: "scroller", tabindex: 0 });
  readonly #sheet = element("div", { class: "text-sheet" });
  readonly #shown = new Map<number, HTMLElement>();
  #pieces: readonly string[] = [];
  #chunks: readonly Chunk[] = [];
  #heights = new Float64Array();
  #tops = new Float64Array();
  #known = new Uint8Array();
  #width = 0;
  #look: (token: number) => TokenLook | null = () => null;

  constructor(events: TextEvents) {
    this.element.append(this.#sheet);
    this.element.addEventListener("scroll", () => this.#fill(), { passive: true });
    new ResizeObserver(() => this.#resized()).observe(this.element);
    this.#sheet.addEventListener("click", (event) => {
      const token = tokenAt(event);
      if (token !== null) events.pick(token);
    });
  }

  set(pieces: readonly string[], name: string): void {
    this.element.setAttribute("aria-label", name);
    this.#pieces = pieces;
    this.#chunks = cut(pieces);
    this.#known = new Uint8Array(this.#chunks.length);
    this.#width = 0;
    this.#clear();
    this.#resized();
  }

  /** How tokens look from now on; null is plain. */
  dress(look: (token: number) => TokenLook | null): void {
    this.#look = look;
    for (const box of this.#shown.values()) this.#dressAll(box);
  }

  /** Scroll so that a token is about a third down. */
  reveal(token: number): void {
    const index = this.#chunks.findIndex((chunk) => token < chunk.end);
    if (index < 0 || this.element.clientHeight === 0) return;
    // First to where it should be, then, as the text around it is known, to where it is.
    for (let attempt = 0; attempt < 3; attempt++) {
      const box = this.#shown.get(index)?.querySelector(`[data-token="${token}"]`);
      const top = this.element.getBoundingClientRect().top;
      const at = box
        ? box.getBoundingClientRect().top - top + this.element.scrollTop
        : (this.#tops[index] ?? 0);
      this.element.scrollTop = at - this.element.clientHeight / 3;
      this.#fill();
    }
  }

  #resized(): void {
    const width = this.element.clientWidth;
    if (width === 0 || this.#chunks.length === 0) return;
    if (width !== this.#width) {
      this.#width = width;
      const letters = Math.max(10, width / LETTERS_WIDE);
      this.#known.fill(0);
      this.#heights = Float64Array.from(this.#chunks, (chunk) => LINE * chunk.lines(letters));
      this.#clear();
      this.#stack();
    }
    this.#fill();
  }

  #clear(): void {
    for (const box of this.#shown.values()) box.remove();
    this.#shown.clear();
  }

  /** Put chunks one below the other. */
  #stack(): void {
    this.#tops = new Float64Array(this.#chunks.length + 1);
    for (let index = 0; index < this.#chunks.length; index++) {
      this.#tops[index + 1] = (this.#tops[index] as number) + (this.#heights[index] as number);
    }
    this.#sheet.style.height = `${this.#tops.at(-1) ?? 0}px`;
    for (const [index, box] of this.#shown) box.style.top = `${this.#tops[index]}px`;
  }

  /** Lay out what is in sight, and take away what is not. */
  #fill(): void {
    const { scrollTop, clientHeight } = this.element;
    if (clientHeight === 0 || this.#width === 0) return;
    const first = this.#at(scrollTop - AHEAD);
    const last = this.#at(scrollTop + clientHeight + AHEAD);
    for (const [index, box] of this.#shown) {
      if (index >= first && index <= last) continue;
      box.remove();
      this.#shown.delete(index);
    }
    const fresh: number[] = [];
    for (let index = first; index <= last; index++) {
      if (this.#shown.has(index) || index >= this.#chunks.length) continue;
      const box = this.#lay(this.#chunks[index] as Chunk);
      box.style.top = `${this.#tops[index]}px`;
      this.#shown.set(index, box);
      this.#sheet.append(box);
      if (!this.#known[index]) fresh.push(index);
    }
    if (fresh.length > 0) this.#measure(fresh, scrollTop);
  }

  /** Now that chunks are laid out, their heights are known; what is in sight stays in its place. */
  #measure(fresh: readonly number[], scrollTop: number): void {
    let moved = 0;
    let changed = false;
    for (const index of fresh) {
      const height = this.#shown.get(index)?.offsetHeight ?? 0;
      const guess = this.#heights[index] as number;
      this.#known[index] = 1;
      if (height === guess || height === 0) continue;
      if ((this.#tops[index] as number) + guess <= scrollTop) moved += height - guess;
      this.#heights[index] = height;
      changed = true;
    }
    if (!changed) return;
    this.#stack();
    if (moved !== 0) this.element.scrollTop = scrollTop + moved;
    this.#fill();
  }

  #at(place: number): number {
    let low = 0;
    let high = this.#chunks.length;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if ((this.#tops[middle] as number) <= place) low = middle;
      else high = middle;
    }
    return low;
  }

  #lay({ first, end }: Chunk): HTMLElement {
    const box = element("div", { class: "text-chunk" });
    for (let index = first; index < end; index++) {
      const piece = this.#pieces[index] as string;
      const { before, token, after } = showPiece(piece);
      const made = element("bdi", { class: isBlank(piece) ? "token blank" : "token" }, token);
      made.dataset.token = String(index);
      box.append(before, made, after);
      this.#dress(made, index);
    }
    return box;
  }

  #dressAll(box: HTMLElement): void {
    for (const made of box.querySelectorAll<HTMLElement>(".token")) {
      this.#dress(made, Number(made.dataset.token));
    }
  }

  #dress(made: HTMLElement, token: number): void {
    const look = this.#look(token);
    const plain = isBlank(this.#pieces[token] ?? "") ? "token blank" : "token";
    const names = look
      ? [plain, look.weight > 0 ? "lit" : "", look.chosen ? "chosen" : "", look.match]
      : [plain];
    const wanted = names.filter((name) => name !== "").join(" ");
    if (made.className !== wanted) made.className = wanted;
    if (look && look.weight > 0) made.style.setProperty("--weight", look.weight.toFixed(3));
  }
}

function tokenAt(event: Event): number | null {
  const target = event.target instanceof Element ? event.target.closest("[data-token]") : null;
  return target instanceof HTMLElement ? Number(target.dataset.token) : null;
}
