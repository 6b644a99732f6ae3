import { element } from "../../dom/element";
import { weightInFigures } from "../../look/figures";
import { showAlone, showAround } from "../../tokens/visible";
import type { Example } from "../data/contract";

const SHOWN = 5;

/** Sentences in which a head looks hardest, with the token that looks and what it looks at. */
export function examplesOf(examples: readonly Example[]): HTMLElement {
  const list = element("ul", { class: "examples" }, ...examples.slice(0, SHOWN).map(exampleOf));
  const rest = examples.slice(SHOWN);
  const made = element(
    "section",
    { class: "card-part" },
    element("h3", {}, "Examples"),
    key(),
    list,
  );
  if (rest.length > 0) {
    const more = element("button", { type: "button", class: "plain" }, `${rest.length} more`);
    more.addEventListener("click", () => {
      list.append(...rest.map(exampleOf));
      more.remove();
    });
    made.append(more);
  }
  return made;
}

function key(): HTMLElement {
  return element(
    "p",
    { class: "small-print key" },
    element("mark", { class: "query" }, "looks at"),
    " ",
    element("mark", { class: "key" }, "is looked at"),
  );
}

function exampleOf({ pieces, weight, document }: Example): HTMLElement {
  const text = element("bdi", { class: "example-text", dir: "auto" });
  for (const [piece, kind] of pieces) {
    text.append(kind ? element("mark", { class: kind }, showAlone(piece)) : plain(piece));
  }
  return element(
    "li",
    {},
    text,
    element(
      "span",
      { class: "example-source" },
      element("b", {}, weightInFigures(weight)),
      " ",
      element("bdi", {}, showAround([document])),
    ),
  );
}

/** Text around marks; a space between two of them stays a space. */
function plain(piece: string): string {
  if (/^\s*$/.test(piece)) return piece.includes("\n") ? "↵ " : piece;
  return showAround([piece.replaceAll(/\r?\n/g, " ↵ ").replaceAll("\t", " ⇥ ")]);
}
