import type { Text } from "../page/contract";
import type { Lit } from "../page/edges";
import { type Block, positionOf } from "./blocks";
import { litBy, type Scene } from "./scene";
import type { Direction, Place } from "./state";
import type { Weights } from "./weights";

/** A head, and the strongest look there from a token, or at it. */
export interface Ranked {
  readonly block: Block;
  readonly place: Place;
  /** The token at the other end of that look, and its text. */
  readonly other: number;
  readonly text: Text;
  /** Its weight or effect; 0 if no look counts. */
  readonly weight: number;
}

/** Up to this distance a word is a neighbour: "didn" and "t" of "didn't". As Python has it. */
const NEAR = 2;
const SPECIAL = /^(?:\[[^\s[\]]+\]|<[^\s<>]+>)$/;

/**
 * All heads with the same texts, the strongest look first. Of weights, only looks between words count
 * that are not neighbours, and none at the first token: heads without a task look there. Null if the
 * scene has changed meanwhile.
 */
export async function rankHeads(
  scene: Scene,
  blocks: readonly Block[],
  weights: Weights,
  isCurrent: () => boolean,
): Promise<Ranked[] | null> {
  const { token, direction } = scene;
  const ranked: Ranked[] = [];
  for (const block of blocks) {
    if (token === null || textOf(block, direction) !== textOf(scene.block, direction)) continue;
    try {
      const layer = await weights.load(block);
      if (!isCurrent()) return null;
      for (let section = 0; section < block.heads; section++) {
        const lit = litBy(layer.at(section), direction, token);
        ranked.push({ ...strongest(block, direction, token, lit), ...placed(block, section) });
      }
    } catch {
      // What is damaged is said when it is looked at.
    }
  }
  return ranked.sort((a, b) => Math.abs(b.weight) - Math.abs(a.weight));
}

function placed(block: Block, section: number): Pick<Ranked, "block" | "place"> {
  return { block, place: { block: block.index, section } };
}

function strongest(
  block: Block,
  direction: Direction,
  token: number,
  lit: Lit,
): Pick<Ranked, "other" | "text" | "weight"> {
  const text = textOf(block, direction === "to" ? "from" : "to");
  const here = positionOf(textOf(block, direction), token);
  const counts = (other: number): boolean => {
    if (lit.signed) return true;
    const place = positionOf(text, other);
    const near = !block.crosses && Math.abs(place - here) <= NEAR;
    return !near && !(direction === "to" && place === 0) && isWord(text.pieces[other] ?? "");
  };
  const rank = lit.tokens.findIndex(counts);
  return { other: lit.tokens[rank] ?? -1, text, weight: lit.weights[rank] ?? 0 };
}

/** The text in which the chosen token of a direction stands. */
function textOf(block: Block, direction: Direction): Text {
  return direction === "to" ? block.queries : block.keys;
}

function isWord(piece: string): boolean {
  return /[\p{L}\p{N}]/u.test(piece) && !SPECIAL.test(piece.trim());
}
