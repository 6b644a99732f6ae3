import { describe, expect, it } from "vitest";
import { tellingToken } from "../src/look/telling-token";
import { decodeSection } from "../src/page/decode-edges";
import { encodeSection, type Section } from "./encode";

function edgesOf(section: Section) {
  const size = section.length;
  const shape = { queries: size, keys: size, sections: 1, weightBits: 16, what: "it" } as const;
  return decodeSection(Uint8Array.from(encodeSection(section, 16)), 0, shape);
}

describe("the token shown first", () => {
  it("is not one that looks at itself, the first or the last token", () => {
    const edges = edgesOf([
      [[0, 1]],
      [
        [0, 0.9],
        [1, 0.1],
      ],
      [
        [2, 0.8],
        [1, 0.2],
      ],
      [
        [1, 0.6],
        [3, 0.4],
      ],
      [[4, 0.99]],
    ]);
    expect(tellingToken(edges)).toBe(3);
  });

  it("is none if all look there", () => {
    expect(tellingToken(edgesOf([[[0, 1]], [[0, 1]]]))).toBeNull();
    expect(tellingToken(edgesOf([[], []]))).toBeNull();
  });

  it("is the only one there is", () => {
    expect(tellingToken(edgesOf([[[0, 1]]]))).toBe(0);
  });
});
