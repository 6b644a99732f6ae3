import { type Block, inOrder } from "../look/blocks";

/** Where everything in the grid stands, in CSS pixels. */
export interface GridLayout {
  readonly cell: number;
  readonly width: number;
  readonly height: number;
  readonly labelWidth: number;
  readonly rows: readonly GridRow[];
  /** Left edge of each column: the heads, then the mean. */
  readonly columns: readonly number[];
  /** The number of the heads in each column, "" where rows have different ones, and "mean". */
  readonly names: readonly string[];
}

export interface GridRow {
  readonly block: Block;
  readonly top: number;
  /** The name of the group that starts with this row, or "". */
  readonly heading: string;
}

export const HEADER = 22;
const HEADING = 26;
/** Between the heads and their mean. */
const MEAN_GAP = 6;
const LARGEST = 40;

/** Cells as large as the width allows, but never smaller than a pointer can hit. */
export function layGrid(blocks: readonly Block[], width: number, smallest: number): GridLayout {
  const heads = Math.max(0, ...blocks.map((block) => block.heads));
  const longest = Math.max(3, ...blocks.map((block) => block.label.length));
  const labelWidth = Math.min(84, 10 + 7 * longest);
  const roomy = labelWidth + MEAN_GAP + (heads + 1) * 20 <= width;
  const gap = roomy ? 2 : 1;
  const fitting = Math.floor((width - labelWidth - MEAN_GAP) / (heads + 1)) - gap;
  const cell = Math.max(smallest, Math.min(LARGEST, fitting));
  const columns = Array.from({ length: heads + 1 }, (_, column) => {
    return labelWidth + column * (cell + gap) + (column === heads ? MEAN_GAP : 0);
  });
  const names = columns.map((_, column) => {
    if (column === heads) return blocks[0]?.over ?? "";
    const numbers = new Set(blocks.flatMap((block) => block.headNumbers[column] ?? []));
    return numbers.size === 1 ? String([...numbers][0]) : "";
  });
  const ordered = inOrder(blocks);
  let top = HEADER;
  const rows = ordered.map((block, index): GridRow => {
    const starts = block.group !== (ordered[index - 1]?.group ?? "");
    if (starts) top += HEADING;
    const row = { block, top, heading: starts ? block.group : "" };
    top += cell + gap;
    return row;
  });
  return {
    cell,
    labelWidth,
    rows,
    columns,
    names,
    width: (columns.at(-1) ?? 0) + cell + gap,
    height: top,
  };
}

/** The left edge of a section of a block: its mean stands under the other means. */
export function columnOf(layout: GridLayout, block: Block, section: number): number {
  return layout.columns.at(section < block.heads ? section : -1) ?? 0;
}
