import { describe, expect, it } from "vitest";
import { fromAddress, type Look, recordingIn, toAddress, usualLook } from "../../src/map/look/look";
import { someInfo } from "./some-info";

const INFO = someInfo();
const LOOK: Look = {
  recording: INFO.digest,
  heads: [
    { call: 1, head: 0 },
    { call: 2, head: "mean" },
    { call: "all", head: "mean" },
  ],
  domain: { x: [10.125, 200], y: [0.5, 190.375] },
  pool: "mean",
  scaling: "linear",
  palette: "viridis",
  query: 999,
};

describe("the address", () => {
  it("restores everything that it holds", () => {
    const address = toAddress(LOOK);
    expect(recordingIn(`#${address}`)).toBe(INFO.digest);
    expect({ ...usualLook(INFO), ...fromAddress(`#${address}`, INFO) }).toEqual(LOOK);
  });

  it("without a part of the matrix is of the whole", () => {
    const address = toAddress({ ...LOOK, domain: null, query: null });
    const { domain, query } = fromAddress(`#${address}`, INFO);
    expect([domain, query]).toEqual([null, null]);
  });

  it.each([
    "#heads=c9-h0&pool=median&scale=cube&colours=plaid&x=5,1&y=0,1&query=1000",
    "#heads=<img>,c1-h7,__proto__&x=a,b&y=Infinity,NaN&query=-1",
    "#",
  ])("that does not fit is ignored: %s", (hash) => {
    expect({ ...usualLook(INFO), ...fromAddress(hash, INFO) }).toEqual(usualLook(INFO));
  });

  it("names no more than four maps", () => {
    const heads = "c0-h0,c0-h1,c1-h0,c1-h1,c2-h0";
    expect(fromAddress(`#heads=${heads}`, INFO).heads).toHaveLength(4);
  });

  it("names only heads that were published", () => {
    const published = { heads: [["1", "0"]] as const, maxZoom: 1, pools: ["mean"] as const };
    const info = someInfo({ published });
    expect(fromAddress("#heads=c0-h0,c1-h0", info).heads).toEqual([{ call: 1, head: 0 }]);
    expect(usualLook(info).pool).toBe("mean");
  });
});
