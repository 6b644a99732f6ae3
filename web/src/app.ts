import { ThemeChoice } from "./colours/theme";
import { element } from "./dom/element";
import { fromAddress, toAddress } from "./look/address";
import { AddressBar } from "./look/address-bar";
import type { Block } from "./look/blocks";
import { listenToKeys } from "./look/keyboard";
import { PageController } from "./look/page-controller";
import type { Scene } from "./look/scene";
import { type State, VIEWS } from "./look/state";
import { rankHeads } from "./look/token-ranking";
import type { Vectors } from "./look/vectors";
import type { Weights } from "./look/weights";
import type { PageData } from "./page/contract";
import type { HeadMap } from "./page/maps";
import { Dimensions } from "./parts/dimensions";
import { Grid } from "./parts/grid";
import { GridPanel } from "./parts/grid-panel";
import { HeadMapView } from "./parts/head-map";
import { Header } from "./parts/header";
import { HeadsView } from "./parts/heads-view";
import { KeyTable } from "./parts/key-table";
import { MapPicture } from "./parts/map-picture";
import { pageHelp } from "./parts/page-help";
import { Reading } from "./parts/reading";
import { stepsSection } from "./parts/steps";
import { Tooltip } from "./parts/tooltip";

/** Up to so many tokens are first shown as lines. */
const LINES_UP_TO = 48;

export interface Given {
  readonly page: PageData;
  readonly blocks: readonly Block[];
  readonly weights: Weights;
  readonly vectors: Vectors;
  readonly maps: readonly (readonly HeadMap[])[];
  /** Why there are no maps, or "". */
  readonly mapsError: string;
}

/** Put the page together in `root`, and start. */
export function startApp(root: HTMLElement, given: Given): void {
  const { page, blocks, weights, vectors, maps, mapsError } = given;
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
    sentences: "all",
    // What heads do is in few of their looks, which small maps don't show.
    colouredBy: maps.length > 0 && page.largest === null ? "map" : (page.measures[0]?.id ?? "map"),
  };
  const restored = { ...usual, ...fromAddress(address.read(), blocks) };

  const controller = new PageController(blocks, weights, page, restored, {
    scene: showScene,
    error: (words, state) => {
      reading.error(words);
      grid.show(state.place);
    },
  });
  const theme = new ThemeChoice(() => repaint());
  const tooltip = new Tooltip();
  const help = pageHelp();
  const header = new Header(
    page.title,
    page.about,
    () => theme.next(),
    () => help.toggle(),
    page.effect_on === null
      ? ""
      : `Effect on ${page.effect_on}: blue looks support it, orange looks oppose it.`,
  );
  const grid = new Grid(page, blocks, maps, tooltip, (place) => controller.goTo(place));
  const panel = new GridPanel(
    page,
    blocks,
    grid,
    mapsError,
    (colouredBy) => controller.change({ colouredBy }),
    (place) => controller.goTo(place),
  );
  const newPicture = (): MapPicture =>
    new MapPicture(page, tooltip, (token) => {
      controller.change({ token, direction: "to", pinned: true, hovered: null });
      revealSoon();
    });
  const heads = new HeadsView(page, maps, newPicture, (section) => {
    controller.goTo({ block: controller.state.place.block, section });
  });
  const reading = new Reading(controller, heads, page.sentence_b_start !== null, tooltip);
  const table = new KeyTable(page, (token) => goToToken(token));
  const map = new HeadMapView(page, maps, newPicture());

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
  const dimensions = page.vectors.length > 0 ? new Dimensions(page, vectors, tooltip) : null;
  if (dimensions) root.append(dimensions.element);
  if (page.explanation) root.append(stepsSection(page.explanation));
  root.append(help.element, tooltip.element);

  let colouredBy = "";
  let shown: Scene | null = null;
  let revealing = controller.state.token !== null;
  let opened = false;

  function showScene(scene: Scene, state: State): void {
    shown = scene;
    document.documentElement.dataset.direction = scene.direction;
    document.documentElement.toggleAttribute("data-signed", scene.edges.signed);
    grid.show(state.place);
    panel.showStack(scene.block.group);
    showHeads(scene, state);
    workspace.dataset.view = state.view;
    reading.show(scene, state, theme.dark);
    table.show(scene);
    map.show(scene, theme.dark);
    dimensions?.show(scene, theme.dark);
    // A page opens at its top.
    if (revealing) reading.reveal(scene, state, opened);
    revealing = false;
    opened = true;
    if (!state.hovered) address.write(toAddress(state, blocks));
  }

  /** Colour the grid: by the token in question, for which all heads are looked through, or by others. */
  function showHeads(scene: Scene, state: State): void {
    const token = `${scene.block.queries.name} ${scene.block.keys.name} ${scene.direction} ${scene.token}`;
    const wanted = `${theme.dark} ${state.colouredBy === "token" ? token : state.colouredBy}`;
    if (wanted === colouredBy) return;
    colouredBy = wanted;
    if (state.colouredBy !== "token") {
      panel.show(state.colouredBy, theme.dark);
      return;
    }
    void rankHeads(scene, blocks, weights, () => wanted === colouredBy).then((ranked) => {
      if (ranked) panel.showRanked(scene, ranked, theme.dark);
    });
  }

  function revealSoon(): void {
    revealing = true;
  }

  function repaint(): void {
    header.show(theme.theme);
    if (shown) showScene(shown, controller.state);
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
    view: () => {
      const next = (VIEWS.indexOf(controller.state.view) + 1) % VIEWS.length;
      controller.setView(VIEWS[next] ?? "text");
    },
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
