import "./style/all.css";
import { element } from "../dom/element";
import { MapApp } from "./app";
import { readRecordings, Site } from "./data/site";
import { fetchEngine } from "./engine/load-engine";
import { recordingIn } from "./look/look";

void start();

async function start(): Promise<void> {
  const root = document.getElementById("regard") ?? document.body;
  try {
    const { recordings } = await readRecordings();
    const wanted = recordingIn(location.hash);
    const chosen = recordings.find(({ digest }) => digest === wanted) ?? recordings[0];
    if (!chosen) throw new Error("There is no recording here. Start `regard map` with one.");
    fetchEngine();
    new MapApp(root, await Site.open(chosen.digest), recordings);
  } catch (error) {
    const words = error instanceof Error ? error.message : String(error);
    const again = element("button", { type: "button", class: "plain" }, "Try again");
    again.addEventListener("click", () => location.reload());
    root.replaceChildren(
      element("div", { class: "error whole", role: "alert" }, element("p", {}, words), again),
    );
  }
}
