import { decodeSection, findSections, type Shape } from "../page/decode-edges";
import type { Edges } from "../page/edges";
import { unpack } from "../page/unpack";
import type { Block } from "./blocks";
import { Recent } from "./recent";

interface Unpacked {
  readonly bytes: Uint8Array;
  readonly starts: readonly number[];
  readonly shape: Shape;
}

/** A layer of a long text takes some megabytes, so that only a few are kept unpacked. */
const LAYERS_KEPT = 4;
const HEADS_KEPT = 12;

/** The weights of all heads, unpacked when they are first looked at. */
export class Weights {
  readonly #layers = new Recent<Block, Promise<Unpacked>>(LAYERS_KEPT);
  readonly #heads = new Recent<string, Edges>(HEADS_KEPT);

  /** `read` gives the base64 that stands under an id in the document. */
  constructor(
    private readonly read: (id: string) => string,
    private readonly weightBits: 8 | 16,
  ) {}

  /** The weights of a head if they are at hand. */
  atHand(block: Block, section: number): Edges | undefined {
    return this.#heads.get(`${block.id} ${section}`);
  }

  async load(block: Block, section: number): Promise<Edges> {
    let unpacked = this.#layers.get(block);
    if (!unpacked) {
      unpacked = this.#unpackLayer(block);
      this.#layers.set(block, unpacked);
    }
    const { bytes, starts, shape } = await unpacked;
    const edges = decodeSection(bytes, starts[section] ?? 0, shape);
    this.#heads.set(`${block.id} ${section}`, edges);
    return edges;
  }

  async #unpackLayer(block: Block): Promise<Unpacked> {
    const bytes = await unpack(this.read(block.id), `weights of ${block.title}`);
    const shape: Shape = {
      queries: block.queries.pieces.length,
      keys: block.keys.pieces.length,
      sections: block.heads + 1,
      weightBits: this.weightBits,
      what: block.title,
    };
    return { bytes, starts: findSections(bytes, shape), shape };
  }
}
