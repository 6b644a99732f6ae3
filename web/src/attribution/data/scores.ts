import { mostOf } from "../../colours/diverging";
import { showText } from "../../tokens/visible";
import type { Attribution, Looks } from "./contract";

/** In characters. */
const LONGEST_NAME = 40;

/** The scores of all passages for a word of the answer, or for the whole. */
export function scoresFor(found: Attribution, word: number | null): readonly number[] {
  return (word === null ? undefined : found.by_token?.[word]) ?? found.scores;
}

/** What is known of passages: what the answer truly lost where one was hidden, else the score.
 * Weights of attention are no losses, and words were not measured. */
export function knownFor(found: Attribution, word: number | null): readonly number[] {
  const scores = scoresFor(found, word);
  if (scores !== found.scores || found.how === "attention") return scores;
  return scores.map((score, passage) => found.exact[passage] ?? score);
}

/** The score with the strongest colour. All words have one scale, so that they can be compared. */
export function mostFor(found: Attribution, word: number | null): number {
  return mostOf(word === null || !found.by_token ? knownFor(found, null) : found.by_token.flat());
}

/** The numbers of passages, the largest score first. */
export function ranked(scores: readonly number[]): number[] {
  return scores.map((_, number) => number).sort((a, b) => at(scores, b) - at(scores, a) || a - b);
}

/** The layer and head with the largest effect by size, or null without heads. */
export function strongestHead(found: Attribution, passage: number): HeadPlace | null {
  const layers = found.by_head?.[passage];
  if (!layers) return null;
  let best: HeadPlace = { layer: 0, head: 0 };
  let most = -1;
  for (const [layer, heads] of layers.entries()) {
    for (const [head, effect] of heads.entries()) {
      if (Math.abs(effect) <= most) continue;
      best = { layer, head };
      most = Math.abs(effect);
    }
  }
  return best;
}

export interface HeadPlace {
  readonly layer: number;
  readonly head: number;
}

/** How a head looks at a passage, if the page has it. */
export function looksOf(found: Attribution, passage: number, place: HeadPlace): Looks | undefined {
  const looks = found.looks?.[passage] ?? [];
  return looks.find(({ layer, head }) => layer === place.layer && head === place.head);
}

/** The text of a passage, token by token, without the spaces around it. */
export function piecesOf(found: Attribution, passage: number): readonly string[] {
  const [start, stop] = found.passages[passage] ?? [0, 0];
  const pieces = found.prompt.slice(start, stop);
  pieces[0] = pieces[0]?.trimStart() ?? "";
  pieces[pieces.length - 1] = pieces.at(-1)?.trimEnd() ?? "";
  return pieces;
}

/** The beginning of a passage, which names it: prompts number passages in their own ways. */
export function nameOf(found: Attribution, passage: number): string {
  const words = showText(piecesOf(found, passage).join("")).replace(/\s+/g, " ").trim();
  const letters = [...words];
  const name =
    letters.length > LONGEST_NAME
      ? `${letters
          .slice(0, LONGEST_NAME - 1)
          .join("")
          .trimEnd()}…`
      : words;
  return `“${name}”`;
}

function at(scores: readonly number[], number: number): number {
  return scores[number] ?? 0;
}
