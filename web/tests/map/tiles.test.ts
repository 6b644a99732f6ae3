import { describe, expect, it } from "vitest";
import {
  isEmptyTile,
  levelFor,
  tilePath,
  tileSpan,
  tilesInSight,
  tokensPerCell,
} from "../../src/map/data/tiles";
import { fromRemoteId, remoteId } from "../../src/map/engine/fetcher";
import { someFacts } from "./some-info";

const FACTS = someFacts();

describe("levels", () => {
  it("halve the tokens of a cell, down to one", () => {
    expect([0, 1, 2].map((z) => tokensPerCell(FACTS.fullZoom, z))).toEqual([4, 2, 1]);
  });

  it.each([
    // 1.5 pixels a cell at most: 4 tokens are 1.2 pixels, 2 tokens 1.4, one token more.
    [0.3, 0],
    [0.7, 1],
    [0.76, 2],
    [40, 2],
    [0.0001, 0],
  ])("are as deep as the screen can show: %f pixels a token", (scale, level) => {
    expect(levelFor(FACTS, scale)).toBe(level);
  });

  it("end where those that are published end", () => {
    expect(levelFor(someFacts({ maxZoom: 1 }), 40)).toBe(1);
  });
});

describe("tiles", () => {
  it("have the paths of the layout", () => {
    expect(tilePath("c1-h0-max", { z: 2, x: 1, y: 3 })).toBe("tiles/c1-h0-max/2/1/3.bin");
  });

  it("have ids from which they are found again", () => {
    const place = { z: 2, x: 10, y: 3 };
    const found = fromRemoteId(remoteId("c1-hmean-max", place));
    expect(found).toEqual({ tileset: "c1-hmean-max", place });
  });

  it("cover what is in sight, and nothing beyond the matrix", () => {
    expect(tileSpan(FACTS, 2, -50, 256, 1000)).toEqual([0, 0]);
    expect(tileSpan(FACTS, 2, 255.5, 256.5, 1000)).toEqual([0, 1]);
    expect(tileSpan(FACTS, 2, 900, 5000, 1000)).toEqual([3, 3]);
    expect(tileSpan(FACTS, 0, 0, 1000, 1000)).toEqual([0, 0]);
  });

  it("in the middle come first", () => {
    const places = tilesInSight(FACTS, 2, { x: [0, 700], y: [0, 700] });
    expect(places).toHaveLength(9);
    expect(places[0]).toEqual({ z: 2, x: 1, y: 1 });
  });

  it("are empty after the last query, where no later key is looked at", () => {
    // Queries 256 … 511 look at keys up to 511: the tile of keys 512 … is empty.
    expect(isEmptyTile(FACTS, { z: 2, x: 2, y: 1 })).toBe(true);
    expect(isEmptyTile(FACTS, { z: 2, x: 1, y: 1 })).toBe(false);
    expect(isEmptyTile(someFacts({ causal: false }), { z: 2, x: 2, y: 1 })).toBe(false);
  });

  it("are empty outside of the matrix", () => {
    expect(isEmptyTile(FACTS, { z: 2, x: 0, y: 4 })).toBe(true);
    expect(isEmptyTile(someFacts({ causal: false, keys: 300 }), { z: 2, x: 2, y: 3 })).toBe(true);
  });

  it("are not empty where the queries stand at the end of more keys", () => {
    // One query after 999 keys looks at all of them.
    expect(isEmptyTile(someFacts({ queries: 1 }), { z: 2, x: 3, y: 0 })).toBe(false);
  });
});
