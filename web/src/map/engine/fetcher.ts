import { TILE } from "../data/contract";
import type { Feed } from "../data/loader";
import { isEmptyTile, type TilePlace, tilePath } from "../data/tiles";
import { type Scene, sceneOf } from "./scene";

/** What all cells are where nobody may look. */
const NOTHING = new Float32Array(TILE * TILE).fill(Number.NaN);

/** The number of a tile in HiGlass: the tileset is in it, so that heads are never mixed up. */
export function remoteId(tileset: string, { z, x, y }: TilePlace): string {
  return `${tileset}.${z}.${x}.${y}`;
}

export function fromRemoteId(id: string): { tileset: string; place: TilePlace } {
  const [tileset = "", z, x, y] = id.split(".");
  return { tileset, place: { z: Number(z), x: Number(x), y: Number(y) } };
}

type Received = (tiles: Readonly<Record<string, object>>) => void;

/** Brings our tiles to HiGlass: the data fetcher `regard`. */
export class Fetcher {
  readonly dataConfig: { readonly tilesetUid: string; readonly server: string };
  readonly tilesetInfoLoading = false;
  readonly #scene: Scene;
  readonly #feed: Feed;
  readonly #ids = new Map<string, string>();
  #received: Received = () => {};

  constructor(_forPlugins: unknown, dataConfig: { readonly view: string }) {
    this.dataConfig = { tilesetUid: "regard", server: "regard" };
    this.#scene = sceneOf(dataConfig.view);
    this.#feed = this.#scene.loader.feed((path, values) => {
      const id = this.#ids.get(path);
      if (id !== undefined) this.#received({ [id]: tileOf(id, values) });
    });
  }

  tilesetInfo(told: (info: object, uid: string) => void): void {
    // Not before the track that asks has been made.
    queueMicrotask(() => told(this.info(), "regard"));
  }

  /** What HiGlass must know to lay tiles out. */
  info(): object {
    const { facts } = this.#scene;
    const width = TILE * 2 ** facts.fullZoom;
    return {
      name: "",
      min_pos: [0, 0],
      max_pos: [width, width],
      max_width: width,
      max_zoom: facts.maxZoom,
      bins_per_dimension: TILE,
      mirror_tiles: "false",
    };
  }

  /** Get these tiles and no others; what is known already comes at once. */
  fetchTilesDebounced(received: Received, wanted: readonly string[]): void {
    this.#received = received;
    const { facts, loader } = this.#scene;
    const here: Record<string, object> = {};
    const paths: string[] = [];
    this.#ids.clear();
    for (const id of wanted) {
      const { tileset, place } = fromRemoteId(id);
      const path = tilePath(tileset, place);
      const values = isEmptyTile(facts, place) ? NOTHING : loader.peek(path);
      if (values) here[id] = tileOf(id, values);
      else {
        paths.push(path);
        this.#ids.set(path, id);
      }
    }
    this.#feed.want(paths);
    if (Object.keys(here).length > 0) received(here);
  }

  close(): void {
    this.#feed.close();
  }
}

function tileOf(id: string, values: Float32Array): object {
  const { place } = fromRemoteId(id);
  return {
    dense: values,
    zoomLevel: place.z,
    tilePos: [place.x, place.y],
    tilePositionId: id,
    tilesetUid: "regard",
  };
}
