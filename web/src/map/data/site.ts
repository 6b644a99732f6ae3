import { Recent } from "../../look/recent";
import type { CallLooks, Direction, Info, Recordings, RowBlock } from "./contract";
import { ask } from "./errors";

const ROW_BLOCKS = 256;
const TOKENS = 64;

export async function readRecordings(): Promise<Recordings> {
  return (await (await ask("recordings.json")).json()) as Recordings;
}

/** What a recording has, but for its tiles. Each thing is asked for once. */
export class Site {
  readonly #texts = new Map<number, Promise<readonly string[]>>();
  readonly #thumbs = new Map<number, Promise<Float32Array>>();
  readonly #rows = new Recent<string, Promise<RowBlock>>(ROW_BLOCKS);
  readonly #looks = new Recent<string, Promise<readonly CallLooks[]>>(TOKENS);
  readonly #asked = new Map<string, { path: string; hangUp: AbortController }>();

  private constructor(
    readonly root: string,
    readonly info: Info,
  ) {}

  static async open(digest: string): Promise<Site> {
    const root = `data/${digest}`;
    return new Site(root, (await (await ask(`${root}/info.json`)).json()) as Info);
  }

  /** The pieces of a text, one for each token. */
  text(number: number): Promise<readonly string[]> {
    return kept(this.#texts, number, async () => {
      const answer = await ask(`${this.root}/text/${number}.json`);
      return ((await answer.json()) as { pieces: string[] }).pieces;
    });
  }

  /** Small maps of all heads of a call, [heads, 32, 32]. */
  thumbs(call: number): Promise<Float32Array> {
    return kept(this.#thumbs, call, async () => {
      return unpackFloats(await ask(`${this.root}/thumbs/${call}.bin`));
    });
  }

  /** The block of rows that a query is in, for a head named as in paths; an earlier one is given up. */
  rows(head: string, query: number): Promise<RowBlock> {
    const block = Math.floor(query / this.info.rowBlock);
    const path = `${this.root}/rows/${head}/${block}.json`;
    const signal = this.#instead("rows", path);
    return kept(this.#rows, path, async () => (await (await ask(path, signal)).json()) as RowBlock);
  }

  /** The strongest look of each head from a token, or at it; an earlier one is given up. */
  looks(direction: Direction, text: number, token: number): Promise<readonly CallLooks[]> {
    const path = `${this.root}/looks/${direction}/${text}/${token}.json`;
    const signal = this.#instead("looks", path);
    return kept(this.#looks, path, async () => {
      return ((await (await ask(path, signal)).json()) as { calls: CallLooks[] }).calls;
    });
  }

  /** Give up what was asked for before, unless it is the same. */
  #instead(kind: string, path: string): AbortSignal {
    let asked = this.#asked.get(kind);
    if (asked?.path !== path) {
      asked?.hangUp.abort();
      asked = { path, hangUp: new AbortController() };
      this.#asked.set(kind, asked);
    }
    return asked.hangUp.signal;
  }
}

interface Store<Key, Value> {
  get(key: Key): Value | undefined;
  set(key: Key, value: Value): unknown;
  delete(key: Key): unknown;
}

/** What was asked for before, or ask now; a failure is not kept. */
function kept<Key, Value>(
  store: Store<Key, Promise<Value>>,
  key: Key,
  get: () => Promise<Value>,
): Promise<Value> {
  const before = store.get(key);
  if (before) return before;
  const asked = get();
  store.set(key, asked);
  asked.catch(() => store.delete(key));
  return asked;
}

/** Numbers out of a gzip body. */
export async function unpackFloats(answer: Response): Promise<Float32Array> {
  if (!answer.body) return new Float32Array();
  const unpacked = answer.body.pipeThrough(new DecompressionStream("gzip"));
  return new Float32Array(await new Response(unpacked).arrayBuffer());
}
