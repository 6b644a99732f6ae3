import { element } from "../dom/element";
import { isBlank } from "../tokens/visible";

export interface TokenEvents {
  /** The pointer is over a token, or over none any more. */
  readonly hover: (token: number | null, at?: Element) => void;
  readonly pick: (token: number) => void;
}

/** Copied for each token: there may be thousands. */
const MODEL = element("bdi", { class: "token", role: "option" });

/** The element of one token; the strip finds it again by its number. */
export function tokenElement(words: string, piece: string, index: number): HTMLElement {
  const made = MODEL.cloneNode() as HTMLElement;
  if (isBlank(piece)) made.classList.add("blank");
  made.setAttribute("data-token", String(index));
  made.textContent = words;
  return made;
}

/** The tokens of a text, in whatever shape they stand: tints them, marks the chosen one, tells events. */
export class TokenStrip {
  #tints: Int8Array;
  #chosen: number | null = null;
  #reachable = 0;
  #over: number | null = null;

  constructor(
    private readonly root: HTMLElement,
    private readonly tokens: readonly HTMLElement[],
    private readonly events: TokenEvents,
  ) {
    this.#tints = new Int8Array(tokens.length);
    this.tokens[0]?.setAttribute("tabindex", "0");
    this.#listen();
  }

  /** Tint tokens; only those whose tint changes are touched. */
  tint(tints: Int8Array): void {
    for (let index = 0; index < this.tokens.length; index++) {
      const tint = tints[index] as number;
      if (tint === this.#tints[index]) continue;
      const token = this.tokens[index] as HTMLElement;
      if (tint === 0) token.classList.remove("lit");
      else {
        token.style.setProperty("--weight", String(Math.abs(tint) / 100));
        token.classList.add("lit");
        token.classList.toggle("against", tint < 0);
      }
    }
    this.#tints = tints;
  }

  choose(index: number | null, pinned: boolean): void {
    const before = this.#chosen === null ? undefined : this.tokens[this.#chosen];
    before?.classList.remove("chosen", "pinned");
    before?.removeAttribute("aria-selected");
    this.#chosen = index;
    const token = index === null ? undefined : this.tokens[index];
    if (!token || index === null) return;
    token.classList.add("chosen");
    token.classList.toggle("pinned", pinned);
    token.setAttribute("aria-selected", "true");
    // What the pointer passes over does not move the keyboard.
    if (pinned || !this.#focused) this.#makeReachable(index);
  }

  /** Scroll the text to a token, and the page too if `all`. */
  reveal(index: number, all: boolean): void {
    const token = this.tokens[index];
    if (!token) return;
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    const show = (): void => {
      scrollInside(token);
      if (all) token.scrollIntoView({ block: "nearest", behavior: still ? "instant" : "auto" });
    };
    show();
    // Lines that are laid out for the first time are higher or lower than was guessed.
    requestAnimationFrame(() => requestAnimationFrame(show));
  }

  /** Whether the keyboard is at one of these tokens. */
  get #focused(): boolean {
    return this.root.contains(document.activeElement);
  }

  /** One token at a time can be reached by Tab. */
  #makeReachable(index: number): void {
    if (index === this.#reachable) return;
    const token = this.tokens[index];
    token?.setAttribute("tabindex", "0");
    if (this.#focused) token?.focus({ preventScroll: true });
    this.tokens[this.#reachable]?.removeAttribute("tabindex");
    this.#reachable = index;
  }

  #listen(): void {
    this.root.addEventListener("pointerover", (event) => {
      // A finger has no place before it touches.
      if (event.pointerType === "touch") return;
      // Between two tokens the last one stays.
      const index = tokenAt(event);
      if (index === null || index === this.#over) return;
      this.#over = index;
      this.events.hover(index, this.tokens[index]);
    });
    this.root.addEventListener("pointerleave", () => {
      if (this.#over === null) return;
      this.#over = null;
      this.events.hover(null);
    });
    this.root.addEventListener("click", (event) => {
      const index = tokenAt(event);
      if (index !== null) this.events.pick(index);
    });
    this.root.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      const index = tokenAt(event);
      if (index === null) return;
      event.preventDefault();
      this.events.pick(index);
    });
  }
}

/** Scroll the box around a token, if it has one, until the token is in sight. */
function scrollInside(token: HTMLElement): void {
  const scroller = token.closest(".scroller");
  if (!scroller) return;
  const box = scroller.getBoundingClientRect();
  const { top, bottom } = token.getBoundingClientRect();
  if (top < box.top || bottom > box.bottom) {
    scroller.scrollTop += (top + bottom - box.top - box.bottom) / 2;
  }
}

function tokenAt(event: Event): number | null {
  const target = event.target instanceof Element ? event.target.closest("[data-token]") : null;
  const index = target?.getAttribute("data-token");
  return index === null || index === undefined ? null : Number(index);
}
