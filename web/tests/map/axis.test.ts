import { describe, expect, it } from "vitest";
import { axisColours } from "../../src/map/colours/axis-colours";
import { drawAxis } from "../../src/map/engine/draw-axis";
import type { Pen, Setting } from "../../src/map/engine/pen";
import { fitted, ticksOf, wrapped } from "../../src/map/engine/ticks";

/** Each letter is 6 pixels wide. */
const measure = (words: string): number => 6 * [...words].length;

class Notes implements Pen {
  readonly texts: { words: string; x: number; y: number; setting: Setting }[] = [];
  readonly rects: number[][] = [];

  text(words: string, x: number, y: number, setting: Setting): void {
    this.texts.push({ words, x, y, setting });
  }

  rect(x: number, y: number, width: number, height: number): void {
    this.rects.push([x, y, width, height]);
  }

  shape(): void {}

  measure(words: string): number {
    return measure(words);
  }
}

describe("ticks", () => {
  it.each([
    [0, 1000, 0.5, 72, [0, 200, 400, 600, 800, 1000]],
    [-30, 25, 10, 40, [0, 5, 10, 15, 20, 25]],
    [97.5, 101.2, 80, 40, [98, 99, 100, 101]],
  ])("are round numbers: %f … %f", (from, to, scale, gap, ticks) => {
    expect(ticksOf(from, to, scale, gap)).toEqual(ticks);
  });

  it("at an edge do not depend on how its place was rounded", () => {
    for (const off of [-1e-10, 0, 1e-10]) {
      expect(ticksOf(4000 + off, 4020 - off, 10, 72)).toEqual([4000, 4010, 4020]);
    }
  });

  it("are never negative, nor minus nothing", () => {
    expect(Object.is(ticksOf(-3, 0, 1, 1)[0], 0)).toBe(true);
  });
});

describe("words that must fit", () => {
  it("are cut, whatever letters they have", () => {
    expect(fitted("whale", 30, measure)).toBe("whale");
    expect(fitted("whaleship", 30, measure)).toBe("whal…");
    expect(fitted("🐋🐋🐋🐋🐋🐋", 18, measure)).toBe("🐋🐋…");
    expect(fitted("x".repeat(100_000), 30, measure)).toBe("xxxx…");
    expect(fitted("whale", 1, measure)).toBe("…");
  });

  it("are put on two lines where they can be", () => {
    expect(wrapped("CHAPTER 1. Loomings.", 66, measure)).toEqual(["CHAPTER 1.", "Loomings."]);
    expect(wrapped("short", 66, measure)).toEqual(["short"]);
    expect(wrapped("Antidisestablishment of", 66, measure)).toEqual(["Antidisest…"]);
  });
});

describe("an axis", () => {
  const text = { size: 5, pieces: ["Call", " me", "\n", "", "\u202eabc"], sections: [], marks: [] };
  const colours = axisColours(false);

  it("writes tokens out where there is room for them", () => {
    const view = { side: "left", from: 0, to: 5, length: 100, depth: 90 } as const;
    const pen = new Notes();
    const drawn = drawAxis(pen, view, text, colours);
    expect(drawn).toEqual(["Call", "me", "↵", "∅", "‹RLO›abc"]);
    expect(pen.texts.map(({ y }) => y)).toEqual([10, 30, 50, 70, 90]);
    expect(pen.texts.every(({ setting }) => setting.align === "right")).toBe(true);
  });

  it("turns them above the map", () => {
    const view = { side: "top", from: 0, to: 5, length: 60, depth: 70 } as const;
    const pen = new Notes();
    drawAxis(pen, view, text, colours);
    expect(pen.texts.map(({ setting }) => setting.turn)).toEqual([-90, -90, -90, -90, -90]);
  });

  it("names positions and sections where there is not", () => {
    const sections = [
      { token: 0, title: "One" },
      { token: 600, title: "Two" },
    ];
    const view = { side: "top", from: 0, to: 1000, length: 500, depth: 70 } as const;
    const long = { size: 1000, pieces: [], sections, marks: [] };
    const drawn = drawAxis(new Notes(), view, long, colours);
    expect(drawn).toEqual(["One", "Two", "0", "200", "400", "600", "800", "1,000"]);
  });

  it("marks no less than can be seen", () => {
    const marks = [{ from: 500, to: 501, kind: "lit", strength: 1 }] as const;
    const view = { side: "top", from: 0, to: 1000, length: 500, depth: 70 } as const;
    const pen = new Notes();
    drawAxis(pen, view, { size: 1000, pieces: [], sections: [], marks }, colours);
    expect(pen.rects[0]).toEqual([250, 63, 2, 7]);
  });
});
