import { Diverging, mostOf } from "../../colours/diverging";
import { element } from "../../dom/element";
import { showAlone, showAround, showPiece } from "../../tokens/visible";
import type { Attribution, Looks } from "../data/contract";
import { type HeadPlace, looksOf, piecesOf } from "../data/scores";
import { figureOf } from "../look/words";

/** So many tokens before one that looks are shown, so that it can be found in the text. */
const AROUND = 6;

/** One head: the tokens of the passage by their effects, and the tokens that look at them. */
export function headLooks(
  found: Attribution,
  passage: number,
  place: HeadPlace,
  stops: readonly string[],
): HTMLElement[] {
  const effect = found.by_head?.[passage]?.[place.layer]?.[place.head] ?? 0;
  const title = element(
    "h3",
    {},
    `Layer ${place.layer}, head ${place.head} `,
    element("span", { class: "score" }, figureOf(found, effect)),
  );
  const looks = looksOf(found, passage, place);
  if (looks) {
    return [title, keysOf(found, passage, looks, stops), queriesOf(found, looks, stops)];
  }
  const kept = found.looks?.[passage]?.length ?? 0;
  const words =
    found.how === "effects"
      ? `Of each passage, the rows of its ${kept} strongest heads are in this file: those with a dot.`
      : "Rows of heads are computed by effects only.";
  return [title, element("p", { class: "small-print" }, words)];
}

function keysOf(
  found: Attribution,
  passage: number,
  { keys }: Looks,
  stops: readonly string[],
): HTMLElement {
  const scale = new Diverging(stops, mostOf(keys));
  const text = element("p", { class: "keys" });
  for (const [number, piece] of piecesOf(found, passage).entries()) {
    const { before, token, after } = showPiece(piece);
    const value = keys[number] ?? 0;
    const made = element("span", { class: "token key", title: figureOf(found, value) }, token);
    scale.paint(made, value);
    text.append(before, made, after);
  }
  return element(
    "div",
    {},
    element("p", { class: "small-print" }, "Which of its tokens matter, through this head:"),
    text,
  );
}

function queriesOf(found: Attribution, { queries }: Looks, stops: readonly string[]): HTMLElement {
  const scale = new Diverging(stops, mostOf(queries.map(([, effect]) => effect)));
  const tokens = [...found.prompt, ...found.answer];
  const rows = queries.map(([query, effect]) => {
    const token = element("b", {}, showAlone(tokens[query] ?? ""));
    const before = showAround(tokens.slice(Math.max(0, query - AROUND), query)).trimStart();
    const score = element("span", { class: "score" }, figureOf(found, effect));
    scale.paint(score, effect);
    // Cut off at its beginning, so that the token is seen.
    const text = element("span", { class: "query-text" }, element("bdi", {}, `${before} `, token));
    return element("li", { "data-query": query }, score, text);
  });
  return element(
    "div",
    {},
    element("p", { class: "small-print" }, "Who looks at it, with the largest effects:"),
    element("ol", { class: "queries" }, ...rows),
  );
}
