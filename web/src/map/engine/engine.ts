// All of engine.js: HiGlass and what it stands on. The rest of the map is in map.js, which is small.

import { install } from "@pixi/unsafe-eval";
import { viewer } from "higlass";
import * as PIXI from "pixi.js";
import type { Mount } from "./higlass";

// Pixi would make its shaders' code at run time, which the page's security policy forbids.
install(PIXI);
PIXI.utils.skipHello();

/** As many pixels as the screen has, and no smoothing, which tiles and texts don't need. */
class Renderer extends PIXI.Renderer {
  constructor(options: PIXI.IRendererOptions & { readonly transparent?: boolean }) {
    const { transparent: _deprecated, ...others } = options;
    const resolution = Math.max(1, devicePixelRatio);
    super({ ...others, antialias: false, backgroundAlpha: 0, resolution });
  }
}

const OURS = { ...PIXI, Renderer };
const open = viewer as unknown as Mount;

export const mount: Mount = (element, viewConfig, options) =>
  open(element, viewConfig, { ...options, PIXI: OURS });
