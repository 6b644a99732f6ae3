import "./style/all.css";
import { startApp } from "./app";
import { element } from "./dom/element";
import { decodeMaps, type HeadMap } from "./page/maps";
import { readPage } from "./page/read-page";
import { inWords, Trouble } from "./page/trouble";
import { unpack } from "./page/unpack";

void start();

async function start(): Promise<void> {
  const root = document.getElementById("regard") ?? document.body;
  try {
    const page = readPage(read("regard-page"));
    let maps: HeadMap[][] = [];
    let mapsTrouble = "";
    try {
      maps = decodeMaps(await unpack(read("regard-maps"), "small maps of the heads"), page);
    } catch (error) {
      // The weights may be whole all the same.
      mapsTrouble = inWords(error);
    }
    startApp(root, { page, maps, mapsTrouble, read });
  } catch (error) {
    root.replaceChildren(element("p", { class: "trouble whole", role: "alert" }, inWords(error)));
  }
}

function read(id: string): string {
  const holder = document.getElementById(id);
  if (!holder) throw new Trouble("A part of this page is missing. Save the page again.");
  return holder.textContent ?? "";
}
