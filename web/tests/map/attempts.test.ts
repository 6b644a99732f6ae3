import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { Attempts } from "../../src/map/data/attempts";
import { SiteError } from "../../src/map/data/errors";

/** Attempts, what they told, and work whose ends are decided here. */
function someAttempts() {
  const told: [string, string | null][] = [];
  const attempts = new Attempts((name, words) => told.push([name, words]));
  const ends: { done: () => void; fail: (error: unknown) => void }[] = [];
  const work = () =>
    new Promise<void>((done, fail) => {
      ends.push({ done, fail });
    });
  return { attempts, told, ends, work };
}

const soon = () => vi.advanceTimersByTimeAsync(0);

beforeEach(() => {
  vi.useFakeTimers();
});

afterEach(() => {
  vi.useRealTimers();
});

describe("attempts", () => {
  it("say what is wrong until it no longer is, and try again by themselves", async () => {
    const { attempts, told, ends, work } = someAttempts();
    attempts.start("text", work);
    ends[0]?.fail(new SiteError("gone", true));
    await soon();
    expect(told).toEqual([["text", "gone"]]);
    await vi.advanceTimersByTimeAsync(3000);
    ends[1]?.done();
    await soon();
    expect(told.at(-1)).toEqual(["text", null]);
  });

  it("are replaced by what is begun under the same name", async () => {
    const { attempts, told, ends, work } = someAttempts();
    attempts.start("row", work);
    ends[0]?.fail(new SiteError("damaged", true));
    await soon();
    attempts.start("row", work);
    expect(told).toEqual([
      ["row", "damaged"],
      ["row", null],
    ]);
    attempts.start("row", work);
    ends[1]?.fail(new Error("too late"));
    ends[2]?.done();
    await vi.advanceTimersByTimeAsync(10_000);
    expect(told).toHaveLength(2);
    expect(ends).toHaveLength(3);
  });

  it("say nothing of a server that is only busy", async () => {
    const { attempts, told, ends, work } = someAttempts();
    attempts.start("row", work);
    ends[0]?.fail(new SiteError("busy", true, 1));
    await vi.advanceTimersByTimeAsync(1000);
    expect(ends).toHaveLength(2);
    expect(told).toEqual([]);
  });

  it("that can't succeed by themselves wait until they are told to", async () => {
    const { attempts, told, ends, work } = someAttempts();
    attempts.start("picture", work);
    attempts.start("text", work);
    ends[0]?.fail(new Error("no room"));
    await vi.advanceTimersByTimeAsync(60_000);
    expect(ends).toHaveLength(2);
    attempts.retry();
    expect(ends).toHaveLength(3);
    expect(told.at(-1)).toEqual(["picture", null]);
  });
});
