import { element } from "../dom/element";
import { capitalized, nameOf } from "../look/blocks";
import { inFigures } from "../look/figures";
import { chosenPieces, litPieces, type Scene } from "../look/scene";
import { showAlone } from "../tokens/visible";
import { quoted } from "./quoted";

/** Which head is shown, and in one sentence what it does with the chosen token. */
export class Headline {
  readonly element = element("div", { class: "headline" });
  /** Read out by screen readers, but only what was chosen, not what the pointer passes over. */
  readonly announcement = element("div", {
    class: "unseen",
    role: "status",
    "aria-live": "polite",
  });
  readonly #name = element("h2");
  readonly #module = element("p", { class: "module" });
  readonly #sentence = element("p", { class: "sentence" });
  readonly #why = element("p", { class: "module" });
  readonly #release: HTMLButtonElement;

  constructor(letGo: () => void) {
    this.#release = element("button", { type: "button", class: "plain release" }, "Unpin ");
    this.#release.append(element("kbd", { "aria-hidden": "true" }, "Esc"));
    this.#release.addEventListener("click", letGo);
    const line = element("div", { class: "line" }, this.#sentence, this.#release);
    this.element.append(this.#name, this.#module, line, this.#why, this.announcement);
  }

  show(scene: Scene, why: string): void {
    this.#name.textContent = capitalized(nameOf(scene.block, scene.section));
    this.#module.textContent = scene.block.module;
    this.#module.hidden = scene.block.module === "";
    this.#why.textContent = why && `Shown first: ${why}.`;
    this.#why.hidden = why === "";
    // It keeps its room, lest tokens move away from under the pointer.
    this.#why.style.visibility = scene.previewed ? "hidden" : "";
    this.#release.hidden = scene.token === null || scene.previewed;
    this.#sentence.replaceChildren(...sentenceOf(scene));
    if (scene.pinned) this.#announce(scene);
  }

  #announce(scene: Scene): void {
    const pieces = litPieces(scene);
    const strongest = Array.from(scene.lit.tokens.slice(0, 5), (token, rank) => {
      return `${showAlone(pieces[token] ?? "")} ${inFigures(scene.lit.weights[rank] as number, scene.lit)}`;
    });
    const words = `${this.#name.textContent}. ${this.#sentence.textContent} ${strongest.join(", ")}`;
    if (this.announcement.textContent !== words) this.announcement.textContent = words;
  }
}

function sentenceOf(scene: Scene): (Node | string)[] {
  const { signed } = scene.edges;
  if (scene.token === null && signed) {
    return [
      "Choose a token to see what its looks do. Until then, colour shows what all looks at a token do.",
    ];
  }
  if (scene.token === null) {
    return [
      "Choose a token to see where it looks. Until then, colour shows how much each token is looked at.",
    ];
  }
  const chosen = quoted(chosenPieces(scene)[scene.token]);
  const strongest = scene.lit.tokens[0];
  if (strongest === undefined) {
    const where = scene.layer === scene.whole ? "in this file" : "between these sentences";
    if (scene.direction === "to") return [chosen, ` looks at nothing ${where}.`];
    return [`Nothing ${where} looks at `, chosen, "."];
  }
  const lit = quoted(litPieces(scene)[strongest]);
  const weight = ` (${inFigures(scene.lit.weights[0] as number, scene.lit)}).`;
  if (signed) {
    return scene.direction === "to"
      ? ["Of the looks of ", chosen, ", the one at ", lit, " has the largest effect", weight]
      : ["Of the looks at ", chosen, ", the one of ", lit, " has the largest effect", weight];
  }
  if (scene.direction === "to") {
    return strongest === scene.token && !scene.block.crosses
      ? [chosen, " looks most at itself", weight]
      : [chosen, " looks most at ", lit, weight];
  }
  return strongest === scene.token && !scene.block.crosses
    ? [chosen, " is looked at most by itself", weight]
    : [chosen, " is looked at most by ", lit, weight];
}
