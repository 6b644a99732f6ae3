import { Help, type Key } from "../../parts/help";

const KEYS: readonly Key[] = [
  [["←", "→", "↑", "↓"], "in the grid: the head beside, the layer above or below"],
  [["Home", "End"], "in the grid: the first or last head of the layer"],
  [["[", "]"], "previous or next head"],
  [["m"], "next measure (with Shift: the one before)"],
  [["Esc"], "show all labels"],
  [["?"], "this help"],
];

/** What the report can do. */
export const reportHelp = (): Help =>
  new Help(
    "How to use this report",
    [
      "Rows of the grid are layers, columns are heads. Choose what colours it; choose a head to see " +
        "all about it. A letter stands for a label of a head: choose the label below the grid to let " +
        "its heads stand out. The address of the page remembers what you look at.",
    ],
    KEYS,
  );
