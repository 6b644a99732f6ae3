import type { PageData, Text } from "../page/contract";

/** What stands in one row of the grid: a layer, or the mean over all heads of several layers. */
export interface Block {
  /** Index among all blocks: the layers first, then the averages. */
  readonly index: number;
  /** Id of the element of the document that holds the weights. */
  readonly id: string;
  /** In the middle of a sentence: "layer 3", "decoder layer 0", "all 6 layers". */
  readonly title: string;
  /** At the head of its row. */
  readonly label: string;
  readonly module: string;
  readonly group: string;
  readonly queries: Text;
  readonly keys: Text;
  /** Queries and keys are two different texts. */
  readonly crosses: boolean;
  /** Sections 0 to `heads` − 1 are heads, section `heads` is their mean. An average has no heads. */
  readonly heads: number;
  /** The numbers of the heads in the model: a page may have some of them. */
  readonly headNumbers: readonly number[];
  readonly measures: Readonly<Record<string, readonly (number | null)[]>>;
  /** Weights of heads are averaged, effects are added up. */
  readonly over: "mean" | "sum";
}

export function blocksOf(page: PageData): Block[] {
  const text = (index: number): Text => page.texts[index] as Text;
  const over = page.largest === null ? "mean" : "sum";
  const layers = page.layers.map((layer, index): Block => {
    return {
      index,
      id: `regard-edges-${index}`,
      title: layer.title,
      label: layer.name,
      module: layer.module,
      group: layer.group,
      queries: text(layer.queries),
      keys: text(layer.keys),
      crosses: layer.queries !== layer.keys,
      heads: layer.heads.length,
      headNumbers: layer.heads,
      measures: layer.measures,
      over,
    };
  });
  const averages = page.averages.map((average, index): Block => {
    return {
      index: layers.length + index,
      id: `regard-average-${index}`,
      title: average.title,
      label: "all",
      module: "",
      group: average.group,
      queries: text(average.queries),
      keys: text(average.keys),
      crosses: average.queries !== average.keys,
      heads: 0,
      headNumbers: [],
      measures: {},
      over,
    };
  });
  return [...layers, ...averages];
}

/** Blocks as the grid shows them: group by group, the average of a group after its layers. */
export function inOrder(blocks: readonly Block[]): Block[] {
  const groups = new Map<string, Block[]>();
  for (const block of blocks) {
    const group = groups.get(block.group);
    if (group) group.push(block);
    else groups.set(block.group, [block]);
  }
  return [...groups.values()].flat();
}

/** "layer 3, head 5", "layer 3, mean of 12 heads", "all 6 layers, mean of heads". */
export function nameOf(block: Block, section: number): string {
  const head = block.headNumbers[section];
  if (head !== undefined) return `${block.title}, head ${head}`;
  if (block.heads === 0) return `${block.title}, ${block.over} of heads`;
  return `${block.title}, ${block.over} of ${block.heads} ${block.heads === 1 ? "head" : "heads"}`;
}

/** Where a token stands in the whole text. */
export function positionOf(text: Text, token: number): number {
  return text.positions?.[token] ?? token;
}

export function capitalized(words: string): string {
  return words.charAt(0).toUpperCase() + words.slice(1);
}
