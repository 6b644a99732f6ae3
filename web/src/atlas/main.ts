import "./style/all.css";
import { element } from "../dom/element";
import { inWords, Trouble } from "../page/trouble";
import { startAtlas } from "./app";
import { readAtlas } from "./data/read-atlas";

const root = document.getElementById("regard") ?? document.body;
try {
  const holder = document.getElementById("regard-atlas");
  if (!holder) throw new Trouble("A part of this report is missing. Write the report again.");
  startAtlas(root, readAtlas(holder.textContent ?? ""));
} catch (error) {
  root.replaceChildren(element("p", { class: "trouble whole", role: "alert" }, inWords(error)));
}
