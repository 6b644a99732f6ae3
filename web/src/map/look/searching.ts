import { type Match, TextIndex } from "../data/search";

const MOST = 5000;

/** Words that are looked for, and at which place one is. */
export class Searching {
  #index: TextIndex | null = null;
  #pieces: readonly string[] = [];
  #words = "";
  matches: readonly Match[] = [];
  at = -1;

  /** Another text. The index is made when something is looked for. */
  setText(pieces: readonly string[]): void {
    if (pieces === this.#pieces) return;
    this.#pieces = pieces;
    this.#index = null;
    this.find(this.#words, 0);
  }

  get here(): Match | null {
    return this.matches[this.at] ?? null;
  }

  get more(): boolean {
    return this.matches.length >= MOST;
  }

  /** Look for words; the first place, which it returns, is the next one from a token on. */
  find(words: string, from: number): Match | null {
    this.#words = words;
    if (words === "" || this.#pieces.length === 0) {
      this.matches = [];
      this.at = -1;
      return null;
    }
    this.#index ??= new TextIndex(this.#pieces);
    this.matches = this.#index.find(words, MOST);
    const next = this.matches.findIndex((match) => match[0] >= from);
    this.at = this.matches.length === 0 ? -1 : Math.max(0, next);
    return this.here;
  }

  /** On to the next place or back to the one before; after the last comes the first. */
  step(by: number): Match | null {
    const { length } = this.matches;
    if (length > 0) this.at = (this.at + by + length) % length;
    return this.here;
  }
}
