import { describe, expect, it } from "vitest";
import { unpack } from "../src/page/unpack";
import { pack } from "./encode";

describe("packed bytes", () => {
  it("come back", async () => {
    const bytes = Array.from({ length: 5000 }, (_, index) => (index * index) % 256);
    expect([...(await unpack(await pack(bytes), "weights of layer 0"))]).toEqual(bytes);
  });

  it.each([
    ["cut short", btoa("x\x9cc`d")],
    ["nothing", ""],
    ["no base64", "<b>"],
    ["something else", btoa("something else, and not packed")],
  ])("that are %s are told by name", async (_, packed) => {
    await expect(unpack(packed, "weights of layer 0")).rejects.toThrow(
      "The weights of layer 0 cannot be read: the file is damaged or cut short.",
    );
  });
});
