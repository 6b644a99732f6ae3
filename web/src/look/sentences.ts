import type { Edges, Span } from "../page/edges";
import type { Block } from "./blocks";
import type { Sentences } from "./state";

/** Decoded edges of the heads of a layer. */
export interface Sections {
  at(section: number): Edges;
}

/** The looks of a layer from one of two sentences to one; all of them between two texts. */
export class BetweenSentences implements Sections {
  readonly #found: (Edges | undefined)[] = [];

  constructor(
    private readonly whole: Sections,
    private readonly from: Span,
    private readonly to: Span,
  ) {}

  at(section: number): Edges {
    this.#found[section] ??= this.whole.at(section).between(this.from, this.to);
    return this.#found[section];
  }
}

export function chosenSentences(
  whole: Sections,
  block: Block,
  sentences: Sentences,
  start: number | null,
): Sections {
  if (start === null || block.crosses) return whole;
  const span = (name: string | undefined): Span =>
    name === "A" ? [0, start] : [start, block.queries.pieces.length];
  return new BetweenSentences(whole, span(sentences[0]), span(sentences.at(-1)));
}
