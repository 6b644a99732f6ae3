import { element } from "../dom/element";
import type { Scene } from "../look/scene";
import type { PageData } from "../page/contract";
import type { HeadMap } from "../page/maps";
import { mapLegend } from "./map-legend";
import type { MapPicture } from "./map-picture";

/** The map of the chosen head, large. */
export class HeadMapView {
  readonly element: HTMLElement;
  readonly #legend = element("div", { class: "legend" });

  constructor(
    private readonly page: PageData,
    private readonly maps: readonly (readonly HeadMap[])[],
    private readonly picture: MapPicture,
  ) {
    this.element = element(
      "section",
      { class: "panel map", "aria-label": "Map" },
      element(
        "div",
        { class: "panel-head" },
        element("h2", {}, "Map"),
        element("p", { class: "legend" }, "rows look, columns are looked at"),
      ),
      picture.element,
      this.#legend,
    );
  }

  show(scene: Scene, dark: boolean): void {
    const map = this.maps[scene.block.index]?.[scene.section];
    this.element.hidden = !map;
    if (!map) return;
    this.picture.show(scene, scene.section, map, dark);
    this.#legend.replaceChildren(...mapLegend(this.page, scene, scene.section, dark));
  }
}
