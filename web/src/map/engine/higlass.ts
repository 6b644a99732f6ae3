// HiGlass, as far as it is used here. It ships types, but not for plugins.

import type * as PIXI from "pixi.js";

export type Pair = [number, number];

/** A scale of d3, from tokens to pixels of a track. */
export interface Scale {
  (value: number): number;
  domain(): Pair;
  range(): Pair;
  invert(pixel: number): number;
}

/** What HiGlass hands to each track. */
export interface TrackContext {
  readonly viewUid: string;
  readonly animate: () => void;
}

/** The part of `PixiTrack` that our tracks stand on. */
export declare class PixiTrack {
  constructor(context: TrackContext, options: object);
  position: Pair;
  dimensions: Pair;
  _xScale: Scale;
  _yScale: Scale;
  readonly pMain: PIXI.Graphics;
  xScale(scale: Scale): unknown;
  yScale(scale: Scale): unknown;
  setPosition(position: Pair): void;
  setDimensions(dimensions: Pair): void;
  zoomed(x: Scale, y: Scale, k?: number, left?: number, top?: number): void;
  rerender(options: object, force?: boolean): void;
  draw(): void;
  drawLabel(): void;
  drawError(): void;
  remove(): void;
}

/** A tile as HiGlass keeps it, with what our track adds. */
export interface HeldTile {
  readonly tileId: string;
  readonly remoteId: string;
  readonly tileData: { readonly dense: Float32Array; zoomLevel: number; tilePos: Pair };
  readonly graphics: PIXI.Graphics;
  sprite?: PIXI.Sprite;
  canvas?: HTMLCanvasElement;
  /** The colours in which it was painted last. */
  paintedWith?: unknown;
}

export interface VisibleTile {
  readonly tileId: string;
  readonly remoteId: string;
  readonly mirrored: boolean;
}

/** The part of `HeatmapTiledPixiTrack` that the map stands on. */
export declare class HeatmapTrack extends PixiTrack {
  readonly fetchedTiles: Readonly<Record<string, HeldTile>>;
  /** Not there before the data fetcher has told. */
  tilesetInfo: object | null;
  visibleTiles: VisibleTile[];
  visibleTileIds: Set<string>;
  zoomLevel: number;
  refreshTiles(): void;
  refreshTilesDebounced(): void;
  receivedTiles(tiles: Readonly<Record<string, object>>): void;
  areAllVisibleTilesLoaded(): boolean;
  setSpriteProperties(sprite: PIXI.Sprite, zoom: number, place: Pair, mirrored: boolean): void;
}

/** What HiGlass offers to plugins. */
export interface ForPlugins {
  readonly tracks: {
    readonly PixiTrack: typeof PixiTrack;
    readonly HeatmapTiledPixiTrack: typeof HeatmapTrack;
  };
  readonly libraries: { readonly PIXI: typeof PIXI };
}

/** The mounted component. */
export interface Component {
  readonly pixiRenderer: PIXI.Renderer;
  readonly setCenters: Readonly<
    Record<string, (x: number, y: number, tokensPerPixel: number, notify: boolean) => void>
  >;
  /** The part of each view that measures itself, by the view's name. */
  readonly tiledPlots: Readonly<Record<string, { element: HTMLElement; measureSize(): void }>>;
  fitPixiToParentContainer(): void;
  updateAfterResize(): void;
}

export interface Api {
  getComponent(): Component;
  destroy(): void;
}

type Plugin = Readonly<Record<string, unknown>>;

export interface Options {
  readonly pluginTracks: Readonly<Record<string, Plugin>>;
  readonly pluginDataFetchers: Readonly<Record<string, Plugin>>;
  readonly [name: string]: unknown;
}

/** Puts a HiGlass component into an element. */
export type Mount = (element: HTMLElement, viewConfig: object, options: Options) => Promise<Api>;
