import { describe, expect, it } from "vitest";
import { decodeMaps, tokensInCell } from "../src/page/maps";
import { somePage } from "./encode";

describe("the maps", () => {
  it("are found for each head, for the mean of a layer and for an average", () => {
    const bytes = Uint8Array.from({ length: 2 * 3 * 9 }, (_, index) => index);
    const maps = decodeMaps(bytes, somePage());
    expect(maps.map((layer) => layer.length)).toEqual([3, 3, 1]);
    expect(maps[1]?.[2]).toEqual({ rows: 3, columns: 3, cells: bytes.slice(45, 54) });
    expect(maps[2]?.[0]?.cells.at(-1)).toBe(255);
  });

  it("have cells of their own size for queries and for keys", () => {
    expect([1, 64, 65, 128, 8192].map((tokens) => tokensInCell(tokens, 64))).toEqual([
      1, 1, 2, 2, 128,
    ]);
    const texts = [
      { name: "source", pieces: Array<string>(130).fill("x"), positions: null },
      { name: "target", pieces: ["x", "y"], positions: null },
    ];
    const [layer] = somePage().layers;
    if (!layer) throw new Error("the page has no layer");
    const layers = [{ ...layer, heads: [0], queries: 1, keys: 0 }];
    const maps = decodeMaps(new Uint8Array(2 * 2 * 44), somePage({ texts, layers, averages: [] }));
    expect(maps[0]?.[0]).toMatchObject({ rows: 2, columns: 44 });
  });

  it("that are too few are told", () => {
    expect(() => decodeMaps(new Uint8Array(53), somePage())).toThrow(
      "maps of the heads are damaged",
    );
  });
});
