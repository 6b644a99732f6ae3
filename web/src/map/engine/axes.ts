import type { Info, Row } from "../data/contract";
import type { HeadFacts } from "../data/heads";
import type { Match } from "../data/search";
import type { AxisText, Mark } from "./scene";

/** What is marked: the chosen query, its keys, and places where words were found. */
export interface Marked {
  readonly query: number | null;
  readonly row: Row | null;
  readonly matches: readonly Match[];
  readonly here: Match | null;
  /** The text in which words were looked for. */
  readonly searched: number;
}

const LIT = 64;
const FAINTEST = 0.12;
const MOST_MATCHES = 2000;

/** What the axes of a head show. */
export function axesOf(
  info: Info,
  facts: HeadFacts,
  texts: ReadonlyMap<number, readonly string[]>,
  marked: Marked,
): { keys: AxisText; queries: AxisText } {
  const { queryText, keyText } = facts.call;
  const axis = (text: number, size: number, marks: Mark[]): AxisText => ({
    size,
    pieces: texts.get(text) ?? [],
    sections: info.sections.filter((section) => section.text === text),
    marks: text === marked.searched ? [...matchMarks(marked), ...marks] : marks,
  });
  return {
    keys: axis(keyText, facts.keys, litMarks(marked.row)),
    queries: axis(queryText, facts.queries, chosenMarks(marked.query)),
  };
}

function chosenMarks(query: number | null): Mark[] {
  return query === null ? [] : [{ from: query, to: query + 1, kind: "chosen", strength: 1 }];
}

/** Strength is the root of the weight, as in the text. */
function litMarks(row: Row | null): Mark[] {
  return (row?.keys ?? []).slice(0, LIT).flatMap((key, rank): Mark[] => {
    const strength = Math.sqrt(Math.min(1, row?.weights[rank] ?? 0));
    return strength < FAINTEST ? [] : [{ from: key, to: key + 1, kind: "lit", strength }];
  });
}

function matchMarks({ matches, here }: Marked): Mark[] {
  const marks = matches.slice(0, MOST_MATCHES).map((match): Mark => {
    return { from: match[0], to: match[1] + 1, kind: "match", strength: 1 };
  });
  if (here) marks.push({ from: here[0], to: here[1] + 1, kind: "match-here", strength: 1 });
  return marks;
}
