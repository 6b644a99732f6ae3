import "./style/all.css";
import { element } from "../dom/element";
import { inWords, PageError } from "../page/errors";
import { startAttribution } from "./app";
import { readAttribution } from "./data/read-attribution";

const root = document.getElementById("regard") ?? document.body;
try {
  const holder = document.getElementById("regard-attribution");
  if (!holder) throw new PageError("A part of this page is missing. Write the page again.");
  startAttribution(root, readAttribution(holder.textContent ?? ""));
} catch (error) {
  root.replaceChildren(element("p", { class: "error whole", role: "alert" }, inWords(error)));
}
