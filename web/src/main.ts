import "./style/all.css";
import { startApp } from "./app";
import { element } from "./dom/element";
import { inWords, PageError } from "./page/errors";
import { decodeMaps, type HeadMap } from "./page/maps";
import { readPage } from "./page/read-page";
import { unpack } from "./page/unpack";

void start();

async function start(): Promise<void> {
  const root = document.getElementById("regard") ?? document.body;
  try {
    const page = readPage(read("regard-page"));
    let maps: HeadMap[][] = [];
    let mapsError = "";
    try {
      maps = decodeMaps(await unpack(read("regard-maps"), "small maps of the heads"), page);
    } catch (error) {
      // The weights may be whole all the same.
      mapsError = inWords(error);
    }
    startApp(root, { page, maps, mapsError, read });
  } catch (error) {
    root.replaceChildren(element("p", { class: "error whole", role: "alert" }, inWords(error)));
  }
}

function read(id: string): string {
  const holder = document.getElementById(id);
  if (!holder) throw new PageError("A part of this page is missing. Save the page again.");
  return holder.textContent ?? "";
}
