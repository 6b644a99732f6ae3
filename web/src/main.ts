import "./style/all.css";
import { startApp } from "./app";
import { element } from "./dom/element";
import { type Block, blocksOf } from "./look/blocks";
import { Vectors } from "./look/vectors";
import { Weights } from "./look/weights";
import type { Edges } from "./page/edges";
import { inWords, PageError } from "./page/errors";
import { decodeMaps, type HeadMap, mapsOf } from "./page/maps";
import { readPage } from "./page/read-page";
import { unpack } from "./page/unpack";

const MAPS = "regard-maps";

void start();

async function start(): Promise<void> {
  const root = document.getElementById("regard") ?? document.body;
  try {
    const page = readPage(read("regard-page"));
    const blocks = blocksOf(page);
    const weights = new Weights(read, page, blocks);
    let maps: HeadMap[][] = [];
    let mapsError = "";
    try {
      maps = document.getElementById(MAPS)
        ? decodeMaps(await unpack(read(MAPS), "small maps of the heads"), page)
        : mapsOf(await Promise.all(blocks.map((block) => edgesOf(weights, block))));
    } catch (error) {
      // The weights may be whole all the same.
      mapsError = inWords(error);
    }
    const vectors = new Vectors(read, page);
    startApp(root, { page, blocks, weights, vectors, maps, mapsError });
  } catch (error) {
    root.replaceChildren(element("p", { class: "error whole", role: "alert" }, inWords(error)));
  }
}

/** The edges of all heads of a block and of their mean. */
async function edgesOf(weights: Weights, block: Block): Promise<Edges[]> {
  try {
    const layer = await weights.load(block);
    return Array.from({ length: block.heads + 1 }, (_, section) => layer.at(section));
  } catch {
    // What is damaged is said when it is looked at.
    return [];
  }
}

function read(id: string): string {
  const holder = document.getElementById(id);
  if (!holder) throw new PageError("A part of this page is missing. Save the page again.");
  return holder.textContent ?? "";
}
