/** Tokens and their weights or effects, the strongest first. */
export interface Lit {
  readonly tokens: Uint32Array;
  readonly weights: Float32Array;
  /** Whether these are effects. */
  readonly signed: boolean;
  /** What has the strongest colour: 1 of weights, the largest of effects. */
  readonly most: number;
}

/** A first index, and the one after the last. */
export type Span = readonly [number, number];

/** The kept weights of one head (or one mean), seen from the queries or from the keys. */
export class Edges {
  #sources: Transposed | undefined;
  #means: Float32Array | undefined;

  /** Entries `starts[q]` to `starts[q + 1]` belong to query q, the strongest first. */
  constructor(
    readonly queries: number,
    readonly keys: number,
    private readonly starts: Uint32Array,
    private readonly targets: Uint32Array,
    private readonly weights: Float32Array,
    private readonly largest: number | null = null,
  ) {}

  get signed(): boolean {
    return this.largest !== null;
  }

  get most(): number {
    return this.largest ?? 1;
  }

  /** The keys that a query looks at. */
  lookedAtBy(query: number): Lit {
    const start = this.starts[query] ?? 0;
    const end = this.starts[query + 1] ?? start;
    return {
      tokens: this.targets.subarray(start, end),
      weights: this.weights.subarray(start, end),
      signed: this.signed,
      most: this.most,
    };
  }

  /** The queries that look at a key. */
  lookingAt(key: number): Lit {
    this.#sources ??= transpose(this);
    const { starts, sources, weights } = this.#sources;
    const start = starts[key] ?? 0;
    const end = starts[key + 1] ?? start;
    const order = Uint32Array.from({ length: end - start }, (_, i) => start + i);
    order.sort((a, b) => Math.abs(weights[b] as number) - Math.abs(weights[a] as number));
    return {
      tokens: order.map((entry) => sources[entry] as number),
      weights: Float32Array.from(order, (entry) => weights[entry] as number),
      signed: this.signed,
      most: this.most,
    };
  }

  /** Only the edges from some queries to some keys. */
  between(queries: Span, keys: Span): Edges {
    const starts = new Uint32Array(this.queries + 1);
    const kept: number[] = [];
    for (let query = 0; query < this.queries; query++) {
      const [first, end] = [this.starts[query] as number, this.starts[query + 1] as number];
      for (let entry = first; entry < end && isIn(query, queries); entry++) {
        if (isIn(this.targets[entry] as number, keys)) kept.push(entry);
      }
      starts[query + 1] = kept.length;
    }
    const targets = Uint32Array.from(kept, (entry) => this.targets[entry] as number);
    const weights = Float32Array.from(kept, (entry) => this.weights[entry] as number);
    return new Edges(this.queries, this.keys, starts, targets, weights, this.largest);
  }

  /** The largest weight, by size, of the queries and keys from a first to before a last one; 0 of none. */
  largestWithin(queries: Span, keys: Span): number {
    let largest = 0;
    for (let query = queries[0]; query < queries[1]; query++) {
      const { tokens, weights } = this.lookedAtBy(query);
      for (let rank = 0; rank < tokens.length; rank++) {
        const weight = weights[rank] as number;
        const larger = Math.abs(weight) > Math.abs(largest);
        if (larger && isIn(tokens[rank] as number, keys)) largest = weight;
      }
    }
    return largest;
  }

  /** For each key, the mean over all queries of the weight that it receives. */
  received(): Float32Array {
    if (!this.#means) {
      this.#means = new Float32Array(this.keys);
      for (let entry = 0; entry < this.targets.length; entry++) {
        const key = this.targets[entry] as number;
        (this.#means[key] as number) += (this.weights[entry] as number) / this.queries;
      }
    }
    return this.#means;
  }
}

function isIn(token: number, [first, end]: Span): boolean {
  return token >= first && token < end;
}

interface Transposed {
  readonly starts: Uint32Array;
  readonly sources: Uint32Array;
  readonly weights: Float32Array;
}

function transpose(edges: Edges): Transposed {
  const starts = new Uint32Array(edges.keys + 1);
  for (let query = 0; query < edges.queries; query++) {
    for (const key of edges.lookedAtBy(query).tokens) (starts[key + 1] as number) += 1;
  }
  for (let key = 0; key < edges.keys; key++) {
    (starts[key + 1] as number) += starts[key] as number;
  }
  const next = starts.slice();
  const total = starts[edges.keys] ?? 0;
  const sources = new Uint32Array(total);
  const weights = new Float32Array(total);
  for (let query = 0; query < edges.queries; query++) {
    const lit = edges.lookedAtBy(query);
    for (let rank = 0; rank < lit.tokens.length; rank++) {
      const key = lit.tokens[rank] as number;
      const entry = next[key] as number;
      next[key] = entry + 1;
      sources[entry] = query;
      weights[entry] = lit.weights[rank] as number;
    }
  }
  return { starts, sources, weights };
}
