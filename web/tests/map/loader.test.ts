import { afterEach, describe, expect, it, vi } from "vitest";
import { SiteError } from "../../src/map/data/errors";
import { Loader } from "../../src/map/data/loader";

interface Asked {
  readonly path: string;
  readonly signal: AbortSignal;
  readonly answer: (values: Float32Array) => void;
  readonly refuse: (error: unknown) => void;
}

function someLoader() {
  const asked: Asked[] = [];
  const told: (SiteError | null)[] = [];
  let time = 0;
  const loader = new Loader(
    (path, signal) =>
      new Promise((answer, refuse) => {
        asked.push({ path, signal, answer, refuse });
      }),
    (error) => told.push(error),
    () => time,
  );
  const paths = () => asked.map(({ path }) => path);
  return { loader, asked, told, paths, wait: (by: number) => (time += by) };
}

const VALUES = new Float32Array(1);

/** After all that is about to happen. */
async function soon(): Promise<void> {
  for (let turn = 0; turn < 20; turn++) await Promise.resolve();
}

afterEach(() => {
  vi.useRealTimers();
});

describe("the loader", () => {
  it("asks for five things at once and for the rest as they come", async () => {
    const { loader, asked, paths } = someLoader();
    const arrived: string[] = [];
    const feed = loader.feed((path) => arrived.push(path));
    feed.want(["a", "b", "c", "d", "e", "f", "g"]);
    expect(paths()).toEqual(["a", "b", "c", "d", "e"]);
    asked[2]?.answer(VALUES);
    await soon();
    expect(arrived).toEqual(["c"]);
    expect(paths().at(-1)).toBe("f");
  });

  it("gives up what is no longer wanted, and tells the server by hanging up", () => {
    const { loader, asked, paths } = someLoader();
    const feed = loader.feed(() => {});
    feed.want(["a", "b"]);
    feed.want(["b", "c"]);
    expect(asked.map(({ signal }) => signal.aborted)).toEqual([true, false, false]);
    expect(paths()).toEqual(["a", "b", "c"]);
    expect(loader.running).toBe(2);
  });

  it("does not give up what another feed wants", () => {
    const { loader, asked } = someLoader();
    const [one, other] = [loader.feed(() => {}), loader.feed(() => {})];
    one.want(["a"]);
    other.want(["a"]);
    one.want([]);
    expect(asked).toHaveLength(1);
    expect(asked[0]?.signal.aborted).toBe(false);
  });

  it("serves the feed first that asked last", async () => {
    const { loader, asked, paths } = someLoader();
    const [one, other] = [loader.feed(() => {}), loader.feed(() => {})];
    one.want(["a", "b", "c", "d", "e", "f"]);
    other.want(["x"]);
    asked[0]?.answer(VALUES);
    await soon();
    expect(paths().slice(5)).toEqual(["x"]);
  });

  it("keeps what came and never asks for it twice", async () => {
    const { loader, asked, paths } = someLoader();
    const feed = loader.feed(() => {});
    feed.want(["a"]);
    asked[0]?.answer(VALUES);
    await soon();
    expect(loader.peek("a")).toBe(VALUES);
    feed.want(["b"]);
    feed.want(["a", "b"]);
    expect(paths()).toEqual(["a", "b"]);
  });

  it("asks a busy server again when it said, without a word", async () => {
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
    const { loader, asked, told, paths, wait } = someLoader();
    loader.feed(() => {}).want(["a"]);
    asked[0]?.refuse(new SiteError("busy", true, 2));
    await soon();
    expect(paths()).toEqual(["a"]);
    expect(told).toEqual([]);
    wait(2001);
    vi.advanceTimersByTime(2100);
    expect(paths()).toEqual(["a", "a"]);
  });

  it("tells of a server that is gone, and when it is back", async () => {
    const { loader, asked, told } = someLoader();
    loader.feed(() => {}).want(["a"]);
    asked[0]?.refuse(new SiteError("gone", true));
    await soon();
    expect(told.map((each) => each?.message)).toEqual(["gone"]);
    loader.retry();
    asked[1]?.answer(VALUES);
    await soon();
    expect(told.at(-1)).toBeNull();
  });

  it("goes on telling of what does not come while other things do", async () => {
    const { loader, asked, told } = someLoader();
    const feed = loader.feed(() => {});
    feed.want(["a", "b"]);
    asked[0]?.refuse(new SiteError("damaged", true));
    asked[1]?.answer(VALUES);
    await soon();
    expect(told.map((each) => each?.message)).toEqual(["damaged"]);
    feed.want(["b"]);
    expect(told.at(-1)).toBeNull();
    feed.want(["a"]);
    expect(told.at(-1)?.message).toBe("damaged");
  });

  it("asks for each thing again when its own time has come", async () => {
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
    const { loader, asked, paths, wait } = someLoader();
    loader.feed(() => {}).want(["a", "b"]);
    asked[0]?.refuse(new SiteError("busy", true, 2));
    asked[1]?.refuse(new SiteError("busy", true, 30));
    await soon();
    for (const [seconds, expected] of [
      [3, ["a", "b", "a"]],
      [28, ["a", "b", "a", "b"]],
    ] as const) {
      wait(1000 * seconds);
      vi.advanceTimersByTime(1000 * seconds);
      expect(paths()).toEqual(expected);
    }
  });

  it("does not ask again for what is not there, unless it is told to", async () => {
    const { loader, asked, wait } = someLoader();
    const feed = loader.feed(() => {});
    feed.want(["a"]);
    asked[0]?.refuse(new SiteError("not there", false));
    await soon();
    wait(1e9);
    feed.want(["a"]);
    expect(asked).toHaveLength(1);
    loader.retry();
    expect(asked).toHaveLength(2);
  });
});
