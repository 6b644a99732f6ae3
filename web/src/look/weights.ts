import type { PageData } from "../page/contract";
import { decodeSection, findSections, type Shape } from "../page/decode-edges";
import type { Edges } from "../page/edges";
import { unpack } from "../page/unpack";
import type { Block } from "./blocks";
import { Recent } from "./recent";

/** At least so many layers are kept unpacked, and as many more as have this many edges together. */
const LAYERS_KEPT = 4;
const EDGES_KEPT = 4e6;

/** The edges of all heads of a layer, decoded when they are first looked at. */
export class LayerEdges {
  readonly #decoded: (Edges | undefined)[] = [];
  readonly #starts: readonly number[];

  constructor(
    private readonly bytes: Uint8Array,
    private readonly shape: Shape,
  ) {
    this.#starts = findSections(bytes, shape);
  }

  at(section: number): Edges {
    this.#decoded[section] ??= decodeSection(this.bytes, this.#starts[section] ?? 0, this.shape);
    return this.#decoded[section];
  }
}

/** The weights of all layers, unpacked when they are first looked at. */
export class Weights {
  readonly #layers: Recent<Block, Promise<LayerEdges>>;

  /** `read` gives the base64 that stands under an id in the document. */
  constructor(
    private readonly read: (id: string) => string,
    private readonly page: PageData,
    blocks: readonly Block[],
  ) {
    const most = Math.max(...blocks.map((one) => one.queries.pieces.length * (one.heads + 1)));
    this.#layers = new Recent(Math.max(LAYERS_KEPT, Math.floor(EDGES_KEPT / (most * page.kept))));
  }

  load(block: Block): Promise<LayerEdges> {
    let edges = this.#layers.get(block);
    if (!edges) {
      edges = this.#unpack(block);
      this.#layers.set(block, edges);
    }
    return edges;
  }

  async #unpack(block: Block): Promise<LayerEdges> {
    const bytes = await unpack(this.read(block.id), `weights of ${block.title}`);
    return new LayerEdges(bytes, {
      queries: block.queries.pieces.length,
      keys: block.keys.pieces.length,
      sections: block.heads + 1,
      weightBits: this.page.weight_bits,
      largest: this.page.largest,
      what: block.title,
    });
  }
}
