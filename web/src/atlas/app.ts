import { ThemeChoice } from "../colours/theme";
import { element } from "../dom/element";
import { listenToKeys } from "../dom/keys";
import { AddressBar } from "../look/address-bar";
import { Header } from "../parts/header";
import { Tooltip } from "../parts/tooltip";
import type { Atlas } from "./data/contract";
import { type Spread, spreadsOf } from "./data/spread";
import { fromAddress, toAddress } from "./look/address";
import type { State } from "./look/state";
import { Card } from "./parts/card";
import { HeadGrid } from "./parts/grid";
import { GridPanel } from "./parts/grid-panel";
import { reportHelp } from "./parts/help";
import { labelsSection } from "./parts/labels-section";
import { notesSections } from "./parts/notes-section";
import { tasksSection } from "./parts/tasks-section";

/** From this width on, grid and card stand side by side; the style sheet has the same. */
const WIDE = "(min-width: 60rem)";

/** How wide the column of labels is, with its gap, and how much room a panel leaves at its sides. */
const LABELS = 200;
const PADDING = 52;

/** Put the report together in `root`, and start. */
export function startAtlas(root: HTMLElement, atlas: Atlas): void {
  const spreads = spreadsOf(atlas);
  const address = new AddressBar();
  const usual: State = {
    measure: spreads[0]?.measure.id ?? "",
    head: firstHead(atlas),
    label: "",
  };
  let state: State = { ...usual, ...fromAddress(address.read(), atlas) };

  const theme = new ThemeChoice(() => show());
  const tooltip = new Tooltip();
  const help = reportHelp();
  const header = new Header(
    atlas.title,
    atlas.about,
    () => theme.next(),
    () => help.toggle(),
  );
  const grid = new HeadGrid(atlas, tooltip, (head, pointed) => {
    change({ head });
    // On a phone the card is below the grid, out of sight.
    if (pointed && !matchMedia(WIDE).matches) card.reveal();
  });
  const panel = new GridPanel(atlas, spreads, grid, {
    measure: (measure) => change({ measure }),
    label: (label) => change({ label }),
  });
  const card = new Card(atlas, spreads, {
    measure: (measure) => change({ measure }),
    back: () => panel.element.scrollIntoView({ block: "start" }),
  });
  const workspace = element("main", { class: "atlas-workspace" }, panel.element, card.element);
  root.replaceChildren(header.element, workspace, labelsSection(atlas, goTo));
  const tasks = tasksSection(atlas, goTo);
  if (tasks) root.append(tasks);
  root.append(element("div", { class: "notes" }, ...notesSections(atlas)));
  root.append(help.element, tooltip.element);

  function change(what: Partial<State>): void {
    state = { ...state, ...what };
    show();
  }

  /** Show a head that was chosen far from its card. */
  function goTo(head: number): void {
    change({ head });
    card.reveal();
    card.focus();
  }

  function show(): void {
    header.show(theme.theme);
    const spread = spreadNamed(spreads, state.measure);
    if (spread) panel.show(spread, state.label, theme.dark);
    grid.show(state.head);
    card.show(state.head, spread?.measure.id ?? "");
    address.write(toAddress(state, atlas));
  }

  function lay(): void {
    const wide = matchMedia(WIDE).matches;
    // Beside a tall grid stand the labels.
    const beside = grid.tall ? LABELS : 0;
    const width = wide
      ? 0.48 * Math.min(innerWidth, 1920) - PADDING - beside
      : panel.element.clientWidth - PADDING;
    const height = wide ? Math.max(480, innerHeight - 270) : Number.POSITIVE_INFINITY;
    const gridWidth = grid.lay(width, height);
    panel.element.classList.toggle("tall", grid.tall);
    workspace.style.setProperty("--grid-width", `${gridWidth + beside}px`);
  }

  const stepHead = (step: number): void =>
    change({ head: around(state.head + step, atlas.heads.length) });
  const stepMeasure = (step: number): void => {
    const at = spreads.findIndex(({ measure }) => measure.id === state.measure);
    change({ measure: spreads[around(at + step, spreads.length)]?.measure.id ?? "" });
  };
  listenToKeys({
    "[": () => stepHead(-1),
    "]": () => stepHead(1),
    m: () => stepMeasure(1),
    M: () => stepMeasure(-1),
    Escape: () => change({ label: "" }),
    "?": () => help.toggle(),
  });
  address.listen((hash) => change({ ...usual, ...fromAddress(hash, atlas) }));
  addEventListener("resize", lay);
  lay();
  show();
}

/** The head that tells most: the first that has the most telling label. */
function firstHead(atlas: Atlas): number {
  return atlas.labels.find(({ heads }) => heads.length > 0)?.heads[0]?.head ?? 0;
}

function spreadNamed(spreads: readonly Spread[], id: string): Spread | undefined {
  return spreads.find(({ measure }) => measure.id === id) ?? spreads[0];
}

function around(number: number, length: number): number {
  return (number + length) % Math.max(1, length);
}
