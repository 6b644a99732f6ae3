import { painted } from "../colours/paint";
import { TILE } from "../data/contract";
import { levelFor, tilesInSight, tokensPerCell } from "../data/tiles";
import { type Fetcher, fromRemoteId, remoteId } from "./fetcher";
import type { ForPlugins, HeatmapTrack, HeldTile, Pair, Scale, TrackContext } from "./higlass";
import { type Scene, sceneOf } from "./scene";

/** A value of the map, and of how many tokens a cell is, in each direction. */
export interface CellValue {
  readonly value: number;
  readonly tokens: number;
}

/** What the map's own track can do beyond what HiGlass asks of it. */
export interface HeatTrack extends HeatmapTrack {
  /** Another head, another way of pooling, or other colours. */
  sceneChanged(): void;
  valueAt(key: number, query: number): CellValue | null;
  /** What is seen, as pictures: canvas, x, y, width and height within the map. */
  pictures(): { canvas: HTMLCanvasElement; x: number; y: number; width: number; height: number }[];
}

type Context = TrackContext & { readonly dataFetcher: Fetcher };

/** The heatmap of HiGlass with our levels, our colours, and tiles of several heads. */
export function heatTrack(forPlugins: ForPlugins, context: Context, options: object): HeatTrack {
  const { PIXI } = forPlugins.libraries;

  class Heat extends forPlugins.tracks.HeatmapTiledPixiTrack implements HeatTrack {
    readonly #scene: Scene = sceneOf(context.viewUid);

    sceneChanged(): void {
      this.tilesetInfo = context.dataFetcher.info();
      this.refreshTiles();
      for (const tile of Object.values(this.fetchedTiles)) this.renderTile(tile);
      context.animate();
    }

    calculateZoomLevel(): number {
      const [from, to] = this._xScale.domain();
      return levelFor(this.#scene.facts, this.dimensions[0] / (to - from));
    }

    calculateVisibleTiles(): void {
      const { facts, tileset } = this.#scene;
      this.zoomLevel = this.calculateZoomLevel();
      const sight = { x: this._xScale.domain(), y: this._yScale.domain() };
      const places = tilesInSight(facts, this.zoomLevel, sight);
      this.visibleTiles = places.map((place) => {
        const id = remoteId(tileset, place);
        return { tileId: id, remoteId: id, mirrored: false };
      });
      this.visibleTileIds = new Set(this.visibleTiles.map((tile) => tile.tileId));
    }

    override refreshTiles(): void {
      if (!this.tilesetInfo || !this.#scene.ready) return;
      this.calculateVisibleTiles();
      this.#dim();
      const missing = this.visibleTiles.filter((tile) => !(tile.tileId in this.fetchedTiles));
      this.#scene.complete(missing.length === 0);
      this.removeOldTiles();
      context.dataFetcher.fetchTilesDebounced(
        (tiles) => this.receivedTiles(tiles),
        missing.map((tile) => tile.remoteId),
      );
    }

    override receivedTiles(tiles: Readonly<Record<string, object>>): void {
      super.receivedTiles(tiles);
      this.#scene.complete(this.areAllVisibleTilesLoaded());
    }

    declare removeOldTiles: () => void;

    /** Tiles of the head that was shown before stay until its successor's are here, but pale. */
    #dim(): void {
      for (const tile of Object.values(this.fetchedTiles)) {
        const current = fromRemoteId(tile.tileId).tileset === this.#scene.tileset;
        tile.graphics.alpha = current ? 1 : 0.25;
      }
    }

    initTile(tile: HeldTile): void {
      this.renderTile(tile);
    }

    updateTile(tile: HeldTile): void {
      this.renderTile(tile);
    }

    renderTile(tile: HeldTile): void {
      const { colormap, facts } = this.#scene;
      if (tile.paintedWith === colormap || !tile.graphics) return;
      const { dense, zoomLevel, tilePos } = tile.tileData;
      tile.paintedWith = colormap;
      const range = colormap.range(tokensPerCell(facts.fullZoom, zoomLevel));
      tile.canvas = painted(dense, TILE, colormap.table, range);
      tile.sprite?.destroy(true);
      const texture = PIXI.Texture.from(tile.canvas, { scaleMode: PIXI.SCALE_MODES.NEAREST });
      tile.sprite = new PIXI.Sprite(texture);
      this.setSpriteProperties(tile.sprite, zoomLevel, tilePos, false);
      tile.graphics.removeChildren();
      tile.graphics.addChild(tile.sprite);
    }

    destroyTile(tile: HeldTile): void {
      tile.sprite?.destroy(true);
      delete tile.sprite;
    }

    override zoomed(x: Scale, y: Scale, k = 1, left = 0, top = 0): void {
      this.xScale(x);
      this.yScale(y);
      this.pMain.position.set(left, top);
      this.pMain.scale.set(k, k);
      this.refreshTilesDebounced();
      context.animate();
    }

    override setPosition(position: Pair): void {
      super.setPosition(position);
      this.#scene.laid(this.position, this.dimensions);
    }

    override setDimensions(dimensions: Pair): void {
      super.setDimensions(dimensions);
      this.#scene?.laid(this.position, this.dimensions);
    }

    valueAt(key: number, query: number): CellValue | null {
      const { facts, tileset } = this.#scene;
      if (key < 0 || query < 0 || key >= facts.keys || query >= facts.queries) return null;
      // While deeper tiles are on their way, what is seen is a coarser one.
      for (let z = this.zoomLevel; z >= 0; z--) {
        const tokens = tokensPerCell(facts.fullZoom, z);
        const [column, row] = [Math.floor(key / tokens), Math.floor(query / tokens)];
        const [x, y] = [Math.floor(column / TILE), Math.floor(row / TILE)];
        const held = this.fetchedTiles[remoteId(tileset, { z, x, y })];
        if (!held) continue;
        const at = (row - y * TILE) * TILE + (column - x * TILE);
        return { value: held.tileData.dense[at] ?? Number.NaN, tokens };
      }
      return null;
    }

    pictures() {
      return this.visibleTiles.flatMap((visible) => {
        const held = this.fetchedTiles[visible.tileId];
        if (!held?.canvas) return [];
        const { zoomLevel, tilePos } = held.tileData;
        const width = TILE * tokensPerCell(this.#scene.facts.fullZoom, zoomLevel);
        const x = this._xScale(tilePos[0] * width);
        const y = this._yScale(tilePos[1] * width);
        const right = this._xScale((tilePos[0] + 1) * width);
        const bottom = this._yScale((tilePos[1] + 1) * width);
        return [{ canvas: held.canvas, x, y, width: right - x, height: bottom - y }];
      });
    }

    override draw(): void {}

    override drawLabel(): void {}

    override drawError(): void {}

    override rerender(): void {}

    override remove(): void {
      context.dataFetcher.close();
      super.remove();
    }
  }

  return new Heat(context, options);
}
