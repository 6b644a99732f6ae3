import "./style/all.css";
import { element } from "../dom/element";
import { inWords, PageError } from "../page/errors";
import { startAtlas } from "./app";
import { readAtlas } from "./data/read-atlas";

const root = document.getElementById("regard") ?? document.body;
try {
  const holder = document.getElementById("regard-atlas");
  if (!holder) throw new PageError("A part of this report is missing. Write the report again.");
  startAtlas(root, readAtlas(holder.textContent ?? ""));
} catch (error) {
  root.replaceChildren(element("p", { class: "error whole", role: "alert" }, inWords(error)));
}
