import { Help, type Key } from "./help";

const KEYS: readonly Key[] = [
  [["←", "→"], "previous or next token"],
  [["↑", "↓"], "layer above or below"],
  [["[", "]"], "previous or next head (or Shift with ← and →)"],
  [["m"], "mean of the heads, and back"],
  [["r"], "where it looks, or who looks at it"],
  [["t"], "lines, text or all heads"],
  [["Esc"], "unpin the token"],
  [["?"], "this help"],
];

/** What the page can do. */
export const pageHelp = (): Help =>
  new Help(
    "How to use this page",
    [
      "Choose a head in the grid. Point at a token to see where it looks; click it to keep it. " +
        "Stronger colour means more weight.",
    ],
    KEYS,
  );
