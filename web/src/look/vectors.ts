import type { PageData, VectorFacts } from "../page/contract";
import { PageError } from "../page/errors";
import { unpack } from "../page/unpack";
import type { Block } from "./blocks";

/** What the dimensions of a query and a key add to their score. */
export interface Pair {
  readonly query: Float32Array;
  readonly key: Float32Array;
  /** Of each dimension, scale · q · k. */
  readonly parts: Float64Array;
  readonly score: number;
}

/** The queries and keys of a layer, unpacked when they are first looked at; only the last is kept. */
export class Vectors {
  #block: Block | null = null;
  #numbers: Promise<Float32Array> | null = null;

  constructor(
    private readonly read: (id: string) => string,
    private readonly page: PageData,
  ) {}

  /** How to read those of a block, if they are there. */
  factsOf(block: Block): VectorFacts | undefined {
    return block.heads > 0 ? this.page.vectors[block.index] : undefined;
  }

  async pair(block: Block, head: number, query: number, key: number): Promise<Pair | null> {
    const facts = this.factsOf(block);
    if (!facts || head >= block.heads) return null;
    const { dim, scale } = facts;
    const numbers = await this.#load(block, facts);
    const queries = block.queries.pieces.length;
    const keyHead = Math.floor((head * facts.key_heads) / block.heads);
    const first = (head * queries + query) * dim;
    const second = (block.heads * queries + keyHead * block.keys.pieces.length + key) * dim;
    const [q, k] = [numbers.subarray(first, first + dim), numbers.subarray(second, second + dim)];
    const parts = Float64Array.from(q, (number, at) => scale * number * (k[at] as number));
    return { query: q, key: k, parts, score: parts.reduce((sum, part) => sum + part, 0) };
  }

  #load(block: Block, { dim, key_heads }: VectorFacts): Promise<Float32Array> {
    if (block !== this.#block || !this.#numbers) {
      this.#block = block;
      const rows = block.heads * block.queries.pieces.length + key_heads * block.keys.pieces.length;
      const what = `queries and keys of ${block.title}`;
      this.#numbers = unpack(this.read(`regard-vectors-${block.index}`), what).then((bytes) => {
        if (bytes.length !== 4 * rows * dim) throw new PageError(`The ${what} are damaged.`);
        return new Float32Array(bytes.buffer);
      });
    }
    return this.#numbers;
  }
}
