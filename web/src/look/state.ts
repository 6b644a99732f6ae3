/** A head, a mean of heads or an average: the index of its block and its section there. */
export interface Place {
  readonly block: number;
  readonly section: number;
}

/** "to": where the chosen token looks. "from": who looks at it. */
export type Direction = "to" | "from";

export const VIEWS = ["lines", "text", "heads"] as const;
/** "heads": all heads of the layer, each as a map. */
export type View = (typeof VIEWS)[number];

/** A token that the pointer is over; which text it stands in decides the direction. */
export interface Hovered {
  readonly token: number;
  readonly direction: Direction;
}

/** Of two sentences A and B: which looks are shown. */
export const SENTENCES = ["all", "A → A", "A → B", "B → A", "B → B"] as const;
export type Sentences = (typeof SENTENCES)[number];

export interface State {
  readonly place: Place;
  readonly direction: Direction;
  readonly view: View;
  /** The chosen token: a query if the direction is "to", a key if it is "from". */
  readonly token: number | null;
  /** A pinned token stays whatever the pointer is over. */
  readonly pinned: boolean;
  readonly hovered: Hovered | null;
  readonly sentences: Sentences;
  /** What colours the grid: "map", or the id of a measure. */
  readonly colouredBy: string;
}

export function other(direction: Direction): Direction {
  return direction === "to" ? "from" : "to";
}
