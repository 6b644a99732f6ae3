import { describe, expect, it } from "vitest";
import { blocksOf } from "../src/look/blocks";
import { type Scene, sceneOf } from "../src/look/scene";
import type { Direction } from "../src/look/state";
import { rankHeads } from "../src/look/token-ranking";
import { Weights } from "../src/look/weights";
import { encodeSection, pack, type Section, somePage } from "./encode";

const PIECES = ["[CLS]", " it", " was", " a", " dog", ".", " x"];
const page = somePage({
  texts: [{ name: "text", pieces: PIECES, positions: null }],
  weight_bits: 16,
  averages: [],
});
const blocks = blocksOf(page);

/** A head in which one query looks at some keys. */
function head(query: number, keys: readonly (readonly [number, number])[]): Section {
  return PIECES.map((_, index) => (index === query ? keys : []));
}

const layers = [
  // To itself and its neighbours; to the first token, and a little to a dog.
  [
    head(1, [
      [1, 0.9],
      [2, 0.1],
    ]),
    head(1, [
      [0, 0.7],
      [4, 0.3],
    ]),
    head(1, []),
  ],
  // To punctuation and a little to an x; to a dog.
  [
    head(1, [
      [5, 0.8],
      [6, 0.2],
    ]),
    head(1, [[4, 0.5]]),
    head(1, []),
  ],
] as const;

async function ranked(direction: Direction, token: number): Promise<string[]> {
  const packed = await Promise.all(
    layers.map((sections) => pack(sections.flatMap((one) => encodeSection(one, 16)))),
  );
  const weights = new Weights((id) => packed[Number(id.at(-1))] ?? "", page, blocks);
  const place = { block: 0, section: 0 };
  const state = {
    place,
    direction,
    token,
    pinned: true,
    hovered: null,
    colouredBy: "token",
  } as const;
  const layer = await weights.load(blocks[0] as (typeof blocks)[0]);
  const scene: Scene = sceneOf(
    { ...state, view: "lines", sentences: "all" },
    blocks[0] as (typeof blocks)[0],
    layer,
    layer,
  );
  const found = await rankHeads(scene, blocks, weights, () => true);
  return (found ?? []).map((one) => {
    return `${one.place.block}.${one.place.section} ${one.other} ${one.weight.toFixed(1)}`;
  });
}

describe("heads for a token", () => {
  it("are in the order of its strongest look at a word that is no neighbour or first token", async () => {
    expect(await ranked("to", 1)).toEqual(["1.1 4 0.5", "0.1 4 0.3", "1.0 6 0.2", "0.0 -1 0.0"]);
  });

  it("or of the strongest look at it", async () => {
    expect(await ranked("from", 4)).toEqual(["1.1 1 0.5", "0.1 1 0.3", "0.0 -1 0.0", "1.0 -1 0.0"]);
  });
});
