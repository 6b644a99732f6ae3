import { drawn } from "../dom/element";
import { type Block, positionOf } from "../look/blocks";
import type { Text } from "../page/contract";
import { showAlone } from "../tokens/visible";

/** Tokens stand at the axes up to here; beyond, positions. */
const MOST_TOKENS = 18;
const LONGEST = 9;
const LETTER = 6.2;

export interface Axes {
  readonly labels: SVGElement[];
  /** Room at the left of the map, and below it. */
  readonly left: number;
  readonly bottom: number;
}

/** The names of the rows (queries) and columns (keys) of a map with the given side. */
export function axisLabels(block: Block, side: number): Axes {
  const rows = marks(block.queries);
  const columns = marks(block.keys);
  const left = 8 + LETTER * longest(rows);
  const upright = block.keys.pieces.length > MOST_TOKENS;
  const bottom = upright ? 18 : 10 + LETTER * longest(columns);
  const labels = rows.map(({ words, share }) => {
    return label(words, { x: -6, y: share * side + 3.5, "text-anchor": "end" });
  });
  for (const { words, share } of columns) {
    const x = share * side;
    const anchor = share < 0.1 ? "start" : share > 0.9 ? "end" : "middle";
    labels.push(
      upright
        ? label(words, { x, y: side + 14, "text-anchor": anchor })
        : label(words, {
            transform: `translate(${x + 3.5} ${side + 6}) rotate(-90)`,
            "text-anchor": "end",
          }),
    );
  }
  return { labels, left, bottom };
}

interface Mark {
  readonly words: string;
  /** How far along the axis. */
  readonly share: number;
}

function marks(text: Text): Mark[] {
  const tokens = text.pieces.length;
  if (tokens <= MOST_TOKENS) {
    return text.pieces.map((piece, index) => ({
      words: shortened(showAlone(piece)),
      share: (index + 0.5) / tokens,
    }));
  }
  const step = roundStep(tokens / 4);
  return Array.from({ length: Math.ceil(tokens / step) }, (_, index) => index * step)
    .filter((token) => token === 0 || token <= tokens - step / 2)
    .map((token) => ({ words: String(positionOf(text, token)), share: (token + 0.5) / tokens }));
}

/** The next lower of 1, 2 or 5 times a power of ten. */
function roundStep(about: number): number {
  const power = 10 ** Math.floor(Math.log10(about));
  const times = about / power;
  return power * (times >= 5 ? 5 : times >= 2 ? 2 : 1);
}

function shortened(words: string): string {
  const letters = [...words];
  return letters.length > LONGEST ? `${letters.slice(0, LONGEST - 1).join("")}…` : words;
}

function longest(marked: readonly Mark[]): number {
  return Math.max(1, ...marked.map(({ words }) => [...words].length));
}

function label(words: string, attributes: Record<string, string | number>): SVGElement {
  const made = drawn("text", attributes);
  made.textContent = words;
  return made;
}
