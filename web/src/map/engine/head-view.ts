import type { Camera } from "../look/camera";
import type { AxisTrack } from "./axis-track";
import type { CanvasTrack } from "./canvas-track";
import type { CellValue, HeatTrack } from "./heat-track";
import type { Api } from "./higlass";
import { loadEngine } from "./load-engine";
import { plugins, registerTracks } from "./plugins";
import type { Margins } from "./room";
import { type Scene, scenes } from "./scene";

interface Tracks {
  readonly heat: HeatTrack;
  /** That of the keys and that of the queries; null if another map has it. */
  readonly axes: readonly [AxisTrack | null, AxisTrack | null];
  readonly lines: readonly [CanvasTrack, CanvasTrack];
}

let made = 0;

/** The map of one head: a HiGlass component that follows our camera. */
export class HeadView {
  readonly #uid = `regard-${++made}`;
  #api: Api | null = null;
  #closed = false;
  #sizes: ResizeObserver | null = null;

  constructor(
    private readonly element: HTMLElement,
    readonly scene: Scene,
    private readonly margins: Margins,
  ) {
    scenes.set(this.#uid, scene);
  }

  async open(): Promise<void> {
    const mount = await loadEngine();
    if (this.#closed) return;
    registerTracks();
    const api = await mount(this.element, this.#config(), {
      ...plugins,
      bounded: true,
      editable: false,
      zoomFixed: true,
      viewPaddingTop: 0,
      viewPaddingBottom: 0,
      viewPaddingLeft: 0,
      viewPaddingRight: 0,
      containerPaddingX: 0,
      containerPaddingY: 0,
      cheatCodesEnabled: false,
    });
    if (this.#closed) {
      api.destroy();
      return;
    }
    this.#api = api;
    this.sharpen();
    this.#watchSize();
  }

  /** The element has another size: lay out anew, without waiting for a frame that shows it. */
  resized(): void {
    const component = this.#api?.getComponent();
    component?.updateAfterResize();
    setTimeout(() => component?.tiledPlots[this.#uid]?.measureSize());
  }

  /** HiGlass notices a new size itself, but seconds late where frames are slow. */
  #watchSize(): void {
    const component = this.#api?.getComponent();
    const plot = component?.tiledPlots[this.#uid];
    if (!component || !plot) return;
    this.#sizes = new ResizeObserver((changes) => {
      for (const { target } of changes) {
        if (target === plot.element) plot.measureSize();
        else component.updateAfterResize();
      }
    });
    this.#sizes.observe(this.element);
    this.#sizes.observe(plot.element);
  }

  /** As many pixels as the screen has. */
  sharpen(): void {
    const component = this.#api?.getComponent();
    if (!component) return;
    component.pixiRenderer.resolution = Math.max(1, devicePixelRatio);
    component.fitPixiToParentContainer();
  }

  look(camera: Camera): void {
    const component = this.#api?.getComponent();
    component?.setCenters[this.#uid]?.(camera.x, camera.y, 1 / camera.scale, false);
  }

  /** The scene has another head or other colours. */
  sceneChanged(): void {
    const tracks = this.#tracks();
    if (!tracks) return;
    tracks.heat.sceneChanged();
    for (const track of [...tracks.axes, ...tracks.lines]) track?.sceneChanged();
  }

  /** Only the axes show something else. */
  axesChanged(): void {
    for (const axis of this.#tracks()?.axes ?? []) axis?.sceneChanged();
  }

  valueAt(key: number, query: number): CellValue | null {
    return this.#tracks()?.heat.valueAt(key, query) ?? null;
  }

  /** The words on the axis of the keys and on that of the queries. */
  texts(): { keys: readonly string[]; queries: readonly string[] } {
    const [keys, queries] = this.#tracks()?.axes ?? [];
    return { keys: keys?.texts() ?? [], queries: queries?.texts() ?? [] };
  }

  tracks(): Tracks | null {
    return this.#tracks();
  }

  close(): void {
    this.#closed = true;
    this.#sizes?.disconnect();
    this.#api?.destroy();
    this.#api = null;
    scenes.delete(this.#uid);
  }

  #tracks(): Tracks | null {
    const component = this.#api?.getComponent() as unknown as {
      getTrackObject(view: string, track: string): unknown;
    } | null;
    if (!component) return null;
    const get = (name: string): unknown => component.getTrackObject(this.#uid, name);
    const heat = get("heat") as HeatTrack | undefined;
    if (!heat) return null;
    return {
      heat,
      axes: [
        this.margins.top > 0 ? (get("axis-top") as AxisTrack) : null,
        this.margins.left > 0 ? (get("axis-left") as AxisTrack) : null,
      ],
      lines: [get("line-top") as CanvasTrack, get("line-left") as CanvasTrack],
    };
  }

  #config(): object {
    const { top, left, line } = this.margins;
    const track = (name: string, side: "top" | "left", size: number): object => ({
      type: `regard-${name}-${side}`,
      uid: `${name}-${side}`,
      [side === "top" ? "height" : "width"]: size,
      options: { side },
    });
    const axis = (side: "top" | "left", size: number) => (size ? [track("axis", side, size)] : []);
    const data = { type: "regard", view: this.#uid };
    const size = Math.max(this.scene.facts.keys, 1);
    return {
      editable: false,
      zoomFixed: true,
      trackSourceServers: [],
      views: [
        {
          uid: this.#uid,
          initialXDomain: [0, size],
          initialYDomain: [0, size],
          zoomFixed: true,
          layout: { w: 12, h: 1, x: 0, y: 0 },
          tracks: {
            top: [...axis("top", top), track("line", "top", line)],
            left: [...axis("left", left), track("line", "left", line)],
            center: [{ type: "regard-heat", uid: "heat", data, options: {} }],
          },
        },
      ],
    };
  }
}
