import type { Atlas, Head } from "../../src/atlas/data/contract";

function head(layer: number, number: number, values: (number | null)[]): Head {
  return {
    layer,
    head: number,
    module: `layers.${layer}`,
    rows: 100,
    labels: [],
    values,
    offsets: null,
    distances: null,
  };
}

/** Two layers: three heads in the first, two in the second. */
export function someAtlas(): Atlas {
  return {
    version: 1,
    title: "a model",
    about: "",
    measures: [
      { id: "first", name: "first token", unit: "", about: "", scale: "linear" },
      { id: "distance", name: "distance", unit: "tokens", about: "", scale: "log" },
      { id: "never", name: "never measured", unit: "", about: "", scale: "linear" },
    ],
    heads: [
      head(0, 0, [0.2, 1, null]),
      head(0, 1, [0.8, 10, null]),
      head(0, 2, [null, 100, null]),
      head(1, 0, [0.2, 0, null]),
      head(1, 2, [0.4, 1000, null]),
    ],
    offsets: [],
    distances: [],
    labels: [{ label: "sink", mark: "S", heads: [{ head: 1, strength: 0.8 }] }],
    relations: [],
    coreference: [],
    examples: [],
    rules: [],
    provenance: [],
    skipped: [],
  };
}
