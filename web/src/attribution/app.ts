import { Diverging } from "../colours/diverging";
import { ThemeChoice } from "../colours/theme";
import { element } from "../dom/element";
import { listenToKeys } from "../dom/keys";
import { AddressBar } from "../look/address-bar";
import { Header } from "../parts/header";
import { Tooltip } from "../parts/tooltip";
import type { Attribution } from "./data/contract";
import { knownFor, mostFor, ranked, scoresFor } from "./data/scores";
import { fromAddress, toAddress } from "./look/address";
import type { State } from "./look/state";
import { AnswerPanel } from "./parts/answer-panel";
import { Card } from "./parts/card";
import { attributionHelp } from "./parts/help";
import { PromptPanel } from "./parts/prompt-panel";
import { Ranking } from "./parts/ranking";

/** From this width on, prompt and card stand side by side; the style sheet has the same. */
const WIDE = "(min-width: 48rem)";

/** Put the page together in `root`, and start. */
export function startAttribution(root: HTMLElement, found: Attribution): void {
  const usual: State = { word: null, passage: ranked(knownFor(found, null))[0] ?? 0, head: null };
  const address = new AddressBar();
  let state: State = { ...usual, ...fromAddress(address.read(), found) };
  /** The word that is pointed at, and shown in place of the chosen one. */
  let hovered: number | null = null;

  const theme = new ThemeChoice(() => show());
  const tooltip = new Tooltip();
  const help = attributionHelp();
  const header = new Header(
    found.title,
    found.about,
    () => theme.next(),
    () => help.toggle(),
  );
  const answer = new AnswerPanel(found, {
    hover: (word) => {
      hovered = word;
      show();
    },
    choose: (word) => {
      hovered = null;
      change({ word });
    },
  });
  const ranking = new Ranking(found, (passage) => choose(passage, true));
  const prompt = new PromptPanel(found, tooltip, (passage, pointed) => {
    choose(passage, pointed);
    // On a phone the card is below the prompt, out of sight.
    if (pointed && !matchMedia(WIDE).matches) card.reveal();
  });
  const card = new Card(found, tooltip, {
    head: (head) => change({ head }),
    back: () => prompt.element.scrollIntoView({ block: "start" }),
  });
  const side = element("div", { class: "used-side" }, answer.element, ranking.element);
  const workspace = element(
    "main",
    { class: "used-workspace" },
    side,
    prompt.element,
    card.element,
  );
  root.replaceChildren(header.element, workspace, help.element, tooltip.element);

  function change(what: Partial<State>): void {
    state = { ...state, ...what };
    show();
  }

  function choose(passage: number, reveal: boolean): void {
    change({ passage, head: null });
    if (reveal || !matchMedia(WIDE).matches) prompt.reveal(passage);
  }

  function show(): void {
    header.show(theme.theme);
    const stops = theme.dark ? found.colours.dark : found.colours.light;
    const word = hovered ?? state.word;
    const scores = scoresFor(found, word);
    const known = knownFor(found, word);
    const scale = new Diverging(stops, mostFor(found, word));
    answer.show(state.word, state.passage, stops);
    ranking.show(scores, known, scale, state.passage);
    prompt.show(scores, known, scale, state.passage, word);
    card.show(state.passage, state.head, word, stops);
    address.write(toAddress(state));
  }

  const stepPassage = (step: number): void => {
    const order = ranked(knownFor(found, state.word));
    const next = order[order.indexOf(state.passage) + step];
    if (next !== undefined) choose(next, true);
  };
  listenToKeys({
    "[": () => stepPassage(-1),
    "]": () => stepPassage(1),
    Escape: () => change({ word: null }),
    "?": () => help.toggle(),
  });
  address.listen((hash) => change({ ...usual, ...fromAddress(hash, found) }));
  const lay = (): void => card.lay(Math.max(300, innerHeight - 420));
  addEventListener("resize", lay);
  show();
  lay();
  prompt.reveal(state.passage);
}
