import { ThemeChoice } from "./colours/theme";
import { element } from "./dom/element";
import { fromAddress, toAddress } from "./look/address";
import { AddressBar } from "./look/address-bar";
import { blocksOf } from "./look/blocks";
import { listenToKeys } from "./look/keyboard";
import { PageController } from "./look/page-controller";
import type { Scene } from "./look/scene";
import type { State } from "./look/state";
import { Weights } from "./look/weights";
import type { PageData } from "./page/contract";
import type { HeadMap } from "./page/maps";
import { Grid } from "./parts/grid";
import { GridPanel } from "./parts/grid-panel";
import { HeadMapView } from "./parts/head-map";
import { Header } from "./parts/header";
import { KeyTable } from "./parts/key-table";
import { pageHelp } from "./parts/page-help";
import { Reading } from "./parts/reading";
import { stepsSection } from "./parts/steps";
import { Tooltip } from "./parts/tooltip";

/** Up to so many tokens are first shown as lines. */
const LINES_UP_TO = 48;

export interface Given {
  readonly page: PageData;
  readonly maps: readonly (readonly HeadMap[])[];
  /** Why there are no maps, or "". */
  readonly mapsError: string;
  /** The base64 under an id of the document. */
  readonly read: (id: string) => string;
}

/** Put the page together in `root`, and start. */
export function startApp(root: HTMLElement, { page, maps, mapsError, read }: Given): void {
  const blocks = blocksOf(page);
  const address = new AddressBar();
  const longest = Math.max(...page.texts.map((text) => text.pieces.length));
  const first = page.first[0];
  const usual: State = {
    place: { block: first?.layer ?? 0, section: first?.head ?? 0 },
    direction: "to",
    view: longest <= LINES_UP_TO ? "lines" : "text",
    token: null,
    pinned: false,
    hovered: null,
    colouredBy: maps.length > 0 ? "map" : (page.measures[0]?.id ?? "map"),
  };
  const restored = { ...usual, ...fromAddress(address.read(), blocks) };

  const controller = new PageController(
    blocks,
    new Weights(read, page.weight_bits),
    page.first,
    restored,
    {
      scene: showScene,
      error: (words, state) => {
        reading.error(words);
        grid.show(state.place);
      },
    },
  );
  const theme = new ThemeChoice(() => repaint());
  const tooltip = new Tooltip();
  const help = pageHelp();
  const header = new Header(
    page.title,
    page.about,
    () => theme.next(),
    () => help.toggle(),
  );
  const grid = new Grid(blocks, maps, tooltip, (place) => controller.goTo(place));
  const panel = new GridPanel(page, grid, mapsError, (colouredBy) => {
    controller.change({ colouredBy });
  });
  const reading = new Reading(controller, tooltip);
  const table = new KeyTable(page, (token) => goToToken(token));
  const map = new HeadMapView(maps, page.map_size, (token) => {
    controller.change({ token, direction: "to", pinned: true, hovered: null });
    revealSoon();
  });

  const columns = Math.max(...blocks.map((block) => block.heads)) + 1;
  const workspace = element(
    "div",
    { class: "workspace" },
    element("div", { class: "left" }, panel.element, map.element),
    reading.element,
    table.element,
  );
  workspace.style.setProperty("--grid-columns", String(columns));
  root.replaceChildren(header.element, workspace);
  if (page.explanation) root.append(stepsSection(page.explanation));
  root.append(help.element, tooltip.element);

  let colouredBy = "";
  let shown: Scene | null = null;
  let revealing = controller.state.token !== null;

  function showScene(scene: Scene, state: State): void {
    shown = scene;
    document.documentElement.dataset.direction = scene.direction;
    grid.show(state.place);
    if (state.colouredBy !== colouredBy) {
      colouredBy = state.colouredBy;
      panel.show(colouredBy, theme.dark);
    }
    reading.show(scene, state);
    table.show(scene);
    map.show(scene, theme.dark);
    if (revealing) reading.reveal(scene, state);
    revealing = false;
    if (!state.hovered) address.write(toAddress(state, blocks));
  }

  function revealSoon(): void {
    revealing = true;
  }

  function repaint(): void {
    header.show(theme.theme);
    panel.show(controller.state.colouredBy, theme.dark);
    if (shown) map.show(shown, theme.dark);
    reading.repaint();
  }

  /** Go from a row of the table to its token; between two texts it is seen from its own side. */
  function goToToken(token: number): void {
    if (!shown) return;
    const turned = shown.direction === "to" ? "from" : "to";
    const direction = shown.block.crosses ? turned : shown.direction;
    controller.change({ token, direction, pinned: true, hovered: null });
    revealSoon();
  }

  listenToKeys({
    token: (step) => {
      controller.stepToken(step);
      revealSoon();
    },
    layer: (step) => controller.stepLayer(step),
    head: (step) => controller.stepHead(step),
    mean: () => controller.toggleMean(),
    turn: () => controller.turn(),
    view: () => controller.setView(controller.state.view === "lines" ? "text" : "lines"),
    letGo: () => controller.letGo(),
    help: () => help.toggle(),
  });
  address.listen((hash) => {
    const state = { ...usual, ...fromAddress(hash, blocks) };
    controller.change(state);
    controller.goTo(state.place);
    revealSoon();
  });
  header.show(theme.theme);
  grid.show(restored.place);
  void controller.start();
}
