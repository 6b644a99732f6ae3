import { Help, type Key } from "../../parts/help";

const KEYS: readonly Key[] = [
  [["←", "→"], "in the answer or the prompt: the word or passage beside"],
  [["←", "→", "↑", "↓"], "in the grid: the head beside, the layer above or below"],
  [["[", "]"], "the passage with the next larger or smaller score"],
  [["Esc"], "the whole answer"],
  [["?"], "this help"],
];

/** What the page can do. */
export const attributionHelp = (): Help =>
  new Help(
    "How to use this page",
    [
      "Passages of the prompt are shaded by how much they support the answer (blue) or oppose it " +
        "(orange). Choose one to see the heads through which it did; choose a head to see which " +
        "tokens of the passage matter, and which tokens look at it. Point at a word of the answer " +
        "to see its passages; choose it to keep them. The address of the page remembers what you " +
        "look at.",
    ],
    KEYS,
  );
