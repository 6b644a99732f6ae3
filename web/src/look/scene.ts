import type { Text } from "../page/contract";
import type { Edges, Lit } from "../page/edges";
import type { Block } from "./blocks";
import type { Sections } from "./sentences";
import type { Direction, State } from "./state";

/** Everything that the parts of the page show at one moment. */
export interface Scene {
  readonly block: Block;
  readonly section: number;
  readonly edges: Edges;
  /** Those of all heads of the layer, between the chosen sentences, and between all. */
  readonly layer: Sections;
  readonly whole: Sections;
  readonly direction: Direction;
  /** The token in question: the one under the pointer, else the chosen one. */
  readonly token: number | null;
  readonly pinned: boolean;
  /** Whether the token is only under the pointer. */
  readonly previewed: boolean;
  /** What the token looks at, or what looks at it; empty without a token. */
  readonly lit: Lit;
}

/** No tokens at all. */
export const NOTHING: Lit = {
  tokens: new Uint32Array(),
  weights: new Float32Array(),
  signed: false,
  most: 1,
};

export function sceneOf(state: State, block: Block, layer: Sections, whole: Sections): Scene {
  const edges = layer.at(state.place.section);
  const hovered = state.pinned ? null : state.hovered;
  const direction = hovered?.direction ?? state.direction;
  const length = (direction === "to" ? block.queries : block.keys).pieces.length;
  const wanted = hovered?.token ?? state.token;
  const token = wanted !== null && wanted < length ? wanted : null;
  return {
    block,
    section: state.place.section,
    edges,
    layer,
    whole,
    direction,
    token,
    pinned: state.pinned && token !== null,
    previewed: hovered !== null,
    lit: token === null ? NOTHING : litBy(edges, direction, token),
  };
}

export function litBy(edges: Edges, direction: Direction, token: number): Lit {
  return direction === "to" ? edges.lookedAtBy(token) : edges.lookingAt(token);
}

/** The pieces of the text that the token in question stands in. */
export function chosenPieces(scene: Scene): readonly string[] {
  return (scene.direction === "to" ? scene.block.queries : scene.block.keys).pieces;
}

/** The text in which tokens are lit. */
export function litText(scene: Scene): Text {
  return scene.direction === "to" ? scene.block.keys : scene.block.queries;
}

/** The pieces of the text in which tokens are lit. */
export function litPieces(scene: Scene): readonly string[] {
  return litText(scene).pieces;
}

/** The share of a query's attention that the page leaves out. */
export function missingShare(lit: Lit): number {
  return Math.max(0, 1 - lit.weights.reduce((sum, weight) => sum + weight, 0));
}
