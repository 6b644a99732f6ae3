/** First and last token of a place where the text was found. */
export type Match = readonly [number, number];

/** Finds words in running text, whatever their case, and however they are cut into tokens or lines. */
export class TextIndex {
  readonly #text: string;
  /** Where each token starts in the text, and at last where the text ends. */
  readonly #starts: Uint32Array;

  constructor(pieces: readonly string[]) {
    const lower = pieces.map(plain);
    this.#starts = new Uint32Array(lower.length + 1);
    for (const [index, piece] of lower.entries()) {
      this.#starts[index + 1] = (this.#starts[index] as number) + piece.length;
    }
    this.#text = lower.join("");
  }

  find(words: string, most: number): Match[] {
    const wanted = plain(words);
    const matches: Match[] = [];
    if (wanted === "") return matches;
    let at = this.#text.indexOf(wanted);
    while (at >= 0 && matches.length < most) {
      matches.push([this.#tokenAt(at), this.#tokenAt(at + wanted.length - 1)]);
      at = this.#text.indexOf(wanted, at + wanted.length);
    }
    return matches;
  }

  /** The token that a letter belongs to; empty tokens have none. */
  #tokenAt(letter: number): number {
    let low = 0;
    let high = this.#starts.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if ((this.#starts[middle] as number) <= letter) low = middle;
      else high = middle;
    }
    return low;
  }
}

/** In small letters; the end of a line is a space like any other. */
function plain(words: string): string {
  return words.toLowerCase().replace(/\s/g, " ");
}
