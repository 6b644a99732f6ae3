import type { ChosenRow } from "./data/chosen-row";
import type { Look } from "./look/look";
import type { Searching } from "./look/searching";
import type { Stage } from "./parts/stage";

/** What tests, and the curious, can ask the map: `window.regardMap`. */
export function hookForTests(
  stage: Stage,
  searching: Searching,
  chosen: ChosenRow,
  look: () => Look,
): void {
  const hook = {
    look,
    row: () => chosen.row,
    camera: () => stage.cameraController.camera,
    domain: () => stage.cameraController.domain,
    match: () => searching.here,
    axisTexts: (map = 0) => stage.cards[map]?.view.texts() ?? null,
    valueAt: (key: number, query: number, map = 0) => {
      return stage.cards[map]?.view.valueAt(key, query) ?? null;
    },
    /** Whether the text is here. */
    hasText: () => stage.cards.every(({ view }) => view.scene.queries.pieces.length > 0),
    /** Whether every tile in sight is painted by the engine. */
    complete: () => stage.cards.every((card) => card.isComplete),
    /** Where the middle of a pair is on the screen. */
    placeOf: (key: number, query: number, map = 0) => stage.cards[map]?.placeOf(key, query) ?? null,
  };
  Object.assign(window, { regardMap: hook });
}
