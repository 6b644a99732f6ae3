import { describe, expect, it } from "vitest";
import { fromAddress, toAddress } from "../../src/atlas/look/address";
import { someAtlas } from "./made";

const ATLAS = someAtlas();

describe("the address of a report", () => {
  it.each([
    [{ measure: "distance", head: 4, label: "sink" }, "measure=distance&head=1.2&label=sink"],
    [{ measure: "first", head: 0, label: "" }, "measure=first&head=0.0"],
  ])("holds measure, head and label", (state, address) => {
    expect(toAddress(state, ATLAS)).toBe(address);
    expect({ ...state, ...fromAddress(`#${address}`, ATLAS) }).toEqual(state);
  });

  it("that does not fit the report is ignored where it does not fit", () => {
    expect(fromAddress("#measure=x&head=9.9&label=y", ATLAS)).toEqual({});
    expect(fromAddress("#head=1.1&measure=first", ATLAS)).toEqual({ measure: "first" });
    expect(fromAddress("#%%%", ATLAS)).toEqual({});
  });
});
