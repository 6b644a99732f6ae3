import { Recent } from "../../look/recent";
import { ask, PATIENCE, SiteError } from "./errors";
import { unpackFloats } from "./site";

/** So many requests run at once; browsers open one more to a host, for texts and rows. */
const AT_ONCE = 5;
/** About 100 MB of decoded tiles. */
const KEPT = 400;

export type Get = (path: string, signal: AbortSignal) => Promise<Float32Array>;
export type Arrived = (path: string, values: Float32Array) => void;

/** Why something did not come, and until when it is not asked for again. */
interface Failure {
  readonly error: SiteError;
  readonly until: number;
}

/** Something that needs tiles, and says at each time which. */
export class Feed {
  wanted: readonly string[] = [];
  /** When it last said what it wants: the newest is served first. */
  turn = 0;

  constructor(
    readonly arrived: Arrived,
    private readonly loader: Loader,
  ) {}

  /** Ask for these and for nothing else: what was wanted before is given up. */
  want(paths: readonly string[]): void {
    this.wanted = paths;
    this.loader.wants(this);
  }

  close(): void {
    this.want([]);
    this.loader.forget(this);
  }
}

/** Gets tiles: what is wanted newest first, a few at a time, never twice, and nothing unwanted. */
export class Loader {
  readonly #feeds = new Set<Feed>();
  readonly #running = new Map<string, AbortController>();
  readonly #failed = new Map<string, Failure>();
  readonly #kept = new Recent<string, Float32Array>(KEPT);
  #turns = 0;
  #told: SiteError | null = null;

  constructor(
    private readonly get: Get,
    /** Told what is wrong with what is wanted, whenever that changes; null when nothing is. */
    private readonly report: (error: SiteError | null) => void,
    private readonly now: () => number = () => performance.now(),
  ) {}

  feed(arrived: Arrived): Feed {
    const feed = new Feed(arrived, this);
    this.#feeds.add(feed);
    return feed;
  }

  forget(feed: Feed): void {
    this.#feeds.delete(feed);
  }

  /** A tile that is here already. */
  peek(path: string): Float32Array | undefined {
    return this.#kept.get(path);
  }

  get running(): number {
    return this.#running.size;
  }

  wants(feed: Feed): void {
    feed.turn = ++this.#turns;
    const wanted = this.#wanted();
    for (const [path, controller] of this.#running) {
      if (wanted.has(path)) continue;
      controller.abort();
      this.#running.delete(path);
    }
    this.#tell();
    this.#pump();
  }

  /** Ask for everything again that failed, now. */
  retry(): void {
    this.#failed.clear();
    this.#tell();
    this.#pump();
  }

  #wanted(): Set<string> {
    return new Set([...this.#feeds].flatMap((feed) => feed.wanted));
  }

  #pump(): void {
    while (this.#running.size < AT_ONCE) {
      const path = this.#next();
      if (path === undefined) return;
      void this.#run(path);
    }
  }

  #next(): string | undefined {
    const feeds = [...this.#feeds].sort((one, other) => other.turn - one.turn);
    for (const feed of feeds) {
      for (const path of feed.wanted) {
        if (this.#running.has(path) || this.#kept.get(path)) continue;
        if ((this.#failed.get(path)?.until ?? 0) > this.now()) continue;
        return path;
      }
    }
    return undefined;
  }

  async #run(path: string): Promise<void> {
    const controller = new AbortController();
    this.#running.set(path, controller);
    try {
      const values = await this.get(path, controller.signal);
      if (controller.signal.aborted) return;
      this.#kept.set(path, values);
      this.#failed.delete(path);
      this.#tell();
      for (const feed of this.#feeds) {
        if (feed.wanted.includes(path)) feed.arrived(path, values);
      }
    } catch (error) {
      if (!controller.signal.aborted) this.#rest(path, error);
    } finally {
      if (this.#running.get(path) === controller) this.#running.delete(path);
      this.#pump();
    }
  }

  /** A path that failed waits; a busy server says for how long. */
  #rest(path: string, thrown: unknown): void {
    const error =
      thrown instanceof SiteError
        ? thrown
        : new SiteError("A tile came damaged. It will be asked for again.", true);
    const seconds = error.waiting ? (error.retryAfter ?? PATIENCE) : Number.POSITIVE_INFINITY;
    this.#failed.set(path, { error, until: this.now() + 1000 * seconds });
    this.#tell();
    if (error.waiting) setTimeout(() => this.#pump(), 1000 * seconds + 20);
  }

  /** What comes does not make good what does not; a server that is only busy is no error. */
  #tell(): void {
    const isWanted = (path: string) => [...this.#feeds].some((feed) => feed.wanted.includes(path));
    const [, wrong] =
      [...this.#failed].find(([path, { error }]) => {
        return error.retryAfter === null && isWanted(path);
      }) ?? [];
    const found = wrong?.error ?? null;
    if (found?.message === this.#told?.message) return;
    this.#told = found;
    this.report(found);
  }
}

/** The usual way to a tile. */
export function getFrom(root: string): Get {
  return async (path, signal) => unpackFloats(await ask(`${root}/${path}`, signal));
}
