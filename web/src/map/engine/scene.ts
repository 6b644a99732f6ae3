import type { ValueRange } from "../colours/range";
import type { Pool } from "../data/contract";
import type { HeadFacts } from "../data/heads";
import type { Loader } from "../data/loader";
import type { Pair } from "./higlass";

/** A stretch of an axis that is marked. */
export interface Mark {
  readonly from: number;
  readonly to: number;
  readonly kind: "chosen" | "lit" | "match" | "match-here";
  /** How strong, 0 … 1. */
  readonly strength: number;
}

/** What an axis knows of the text that runs along it. */
export interface AxisText {
  readonly size: number;
  /** The pieces of its tokens; empty until the text is here. */
  readonly pieces: readonly string[];
  readonly sections: readonly { readonly token: number; readonly title: string }[];
  readonly marks: readonly Mark[];
}

export interface AxisColours {
  readonly ink: string;
  readonly muted: string;
  readonly line: string;
  readonly tint: string;
  readonly stroke: string;
  readonly match: string;
  readonly matchHere: string;
}

/** How tiles are painted: whenever this is another object, they are painted anew. */
export interface Colormap {
  readonly table: Uint32Array;
  readonly range: (tokensPerCell: number) => ValueRange;
}

/** All that the tracks of one map read. */
export interface Scene {
  facts: HeadFacts;
  pool: Pool;
  tileset: string;
  colormap: Colormap;
  colours: AxisColours;
  keys: AxisText;
  queries: AxisText;
  readonly loader: Loader;
  /** Tiles are asked for only when it is known what is to be seen. */
  ready: boolean;
  /** The map was laid out here, within its element. */
  readonly laid: (position: Pair, dimensions: Pair) => void;
  /** All tiles that are in sight have been painted, or some have not. */
  readonly complete: (all: boolean) => void;
}

/** HiGlass makes the tracks itself; by the name of their view they find what they show. */
export const scenes = new Map<string, Scene>();

export function sceneOf(viewUid: string): Scene {
  const scene = scenes.get(viewUid);
  if (!scene) throw new Error(`there is no view ${viewUid}`);
  return scene;
}
