import type { Call, Info } from "../../src/map/data/contract";
import { factsOf, type HeadFacts } from "../../src/map/data/heads";

/** A recording of so many layers of two heads over a text of 1,000 tokens: 4 tiles a side. */
export function someInfo(change: Partial<Info> = {}): Info {
  const call = (number: number): Call => ({
    call: number,
    layer: String(number),
    group: "",
    module: `layers.${number}`,
    queries: 1000,
    keys: 1000,
    queryText: 0,
    keyText: 0,
    heads: 2,
    maxZoom: 2,
    causal: true,
    measures: {},
  });
  return {
    version: 1,
    first: null,
    live: true,
    name: "some",
    title: "Some text",
    digest: "00000000000000aa",
    about: { model: "a model", date: "", dtype: "float32", error: 0 },
    tileSize: 256,
    rowBlock: 16,
    texts: [{ name: "text", tokens: 1000 }],
    sections: [],
    measures: [],
    calls: [call(0), call(1), call(2)],
    effects: null,
    all: { maxZoom: 2, fullZoom: 2 },
    published: null,
    ...change,
  };
}

export function someFacts(change: Partial<HeadFacts> = {}): HeadFacts {
  const facts = factsOf(someInfo(), { call: 1, head: 0 });
  if (!facts) throw new Error("there is no such head");
  return { ...facts, ...change };
}
