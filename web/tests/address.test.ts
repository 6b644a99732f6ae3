import { describe, expect, it } from "vitest";
import { fromAddress, toAddress } from "../src/look/address";
import { blocksOf } from "../src/look/blocks";
import type { State } from "../src/look/state";
import { somePage } from "./encode";

const BLOCKS = blocksOf(somePage());
const STATE: State = {
  place: { block: 1, section: 1 },
  direction: "from",
  view: "text",
  token: 2,
  pinned: true,
  hovered: null,
  sentences: "A → B",
  colouredBy: "entropy",
};

describe("the address", () => {
  it.each([
    [STATE, "layer=1&head=1&token=2&view=text&direction=from&sentences=AB&colour=entropy"],
    [
      { ...STATE, place: { block: 0, section: 2 } },
      "layer=0&head=mean&token=2&view=text&direction=from&sentences=AB&colour=entropy",
    ],
    [
      { ...STATE, place: { block: 2, section: 0 }, colouredBy: "map" },
      "average=0&token=2&view=text&direction=from&sentences=AB",
    ],
  ])("holds the state", (state, address) => {
    expect(toAddress(state, BLOCKS)).toBe(address);
    expect({ ...state, ...fromAddress(`#${address}`, BLOCKS) }).toEqual(state);
  });

  it("that does not fit the page is ignored where it does not fit", () => {
    expect(fromAddress("#layer=99&head=-1&token=x&view=cube", BLOCKS)).toEqual({});
    expect(fromAddress("#layer=2", BLOCKS)).toEqual({});
    expect(fromAddress("#layer=1&head=7", BLOCKS)).toEqual({ place: { block: 1, section: 2 } });
    expect(fromAddress("", BLOCKS)).toEqual({});
  });
});
