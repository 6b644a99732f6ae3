import { Help, type Key } from "../../parts/help";

const KEYS: readonly Key[] = [
  [["+", "−"], "zoom (or the wheel, or two fingers)"],
  [["←", "→", "↑", "↓"], "move (or drag)"],
  [["0"], "the whole matrix"],
  [["d"], "down to single tokens, where the pointer is"],
  [["[", "]"], "previous or next head"],
  [["{", "}"], "layer above or below"],
  [["m"], "mean or largest weight of a cell"],
  [["l"], "logarithmic or linear colours"],
  [["t"], "light or dark"],
  [["/"], "search the text"],
  [["e"], "save a picture"],
  [["Esc"], "unpin the row"],
  [["?"], "this help"],
];

/** What the map can do. */
export const mapHelp = (): Help =>
  new Help(
    "How to read the map",
    [
      "Each row is a token that looks, each column a token that is looked at. Zoom in until a cell " +
        "is one pair of tokens; farther out, a cell is the mean, or the largest, of many pairs. " +
        "Click a row, or a token of the text, to see where it looks.",
      "Above the map stands how much each token receives, to its left how widely each looks. " +
        "Choose a head with Shift to see it beside the others.",
    ],
    KEYS,
  );
