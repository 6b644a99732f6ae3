import { element } from "../dom/element";
import type { Scene } from "../look/scene";
import type { HeadMap } from "../page/maps";
import type { MapPicture } from "./map-picture";

/** The map of the chosen head, large. */
export class HeadMapView {
  readonly element: HTMLElement;

  constructor(
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
    );
  }

  show(scene: Scene, dark: boolean): void {
    const map = this.maps[scene.block.index]?.[scene.section];
    this.element.hidden = !map;
    if (map) this.picture.show(scene, scene.section, map, dark);
  }
}
