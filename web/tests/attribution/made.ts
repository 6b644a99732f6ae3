import { type Attribution, VERSION } from "../../src/attribution/data/contract";

/** Three passages, an answer of two tokens, two layers with two heads each. */
export function someAttribution(): Attribution {
  return {
    version: VERSION,
    title: "Which passages?",
    about: "a small model",
    colours: { light: ["#ff0000", "#ffffff", "#0000ff"], dark: ["#ff0000", "#000000", "#0000ff"] },
    how: "effects",
    log_prob: -1.5,
    notes: [],
    prompt: ["One", " is", "\n", "Two", "\n", "Three", " are"],
    answer: [" it", "."],
    passages: [
      [0, 2],
      [3, 4],
      [5, 7],
    ],
    scores: [0.5, -0.25, 0.5],
    exact: [0.75, null, null],
    disagreements: [null, null, null],
    by_token: [
      [1, -0.5, 0.5],
      [-0.5, 0.25, 0],
    ],
    by_head: [
      [
        [0.25, 0],
        [0, 0.25],
      ],
      [
        [0, 0.125],
        [-0.375, 0],
      ],
      [
        [0, 0],
        [0, 0.5],
      ],
    ],
    looks: [[], [{ layer: 1, head: 0, keys: [-0.375], queries: [[5, -0.375]] }], []],
  };
}
