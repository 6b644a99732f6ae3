import type { Theme } from "../../colours/theme";
import { element } from "../../dom/element";
import { count } from "../../look/figures";
import { Switch } from "../../parts/switch";
import { PALETTES, type Palette } from "../colours/palettes";
import type { Scaling } from "../colours/range";
import type { Info, Pool, RecordingEntry } from "../data/contract";
import { type Icon, icon, THEME_NAMES } from "./icons";
import type { SearchBox } from "./search-box";

export interface TopBarEvents {
  readonly recording: (digest: string) => void;
  readonly pool: (pool: Pool) => void;
  readonly scaling: (scaling: Scaling) => void;
  readonly palette: (palette: Palette) => void;
  readonly exporting: (format: "png" | "svg") => void;
  readonly theme: () => void;
  readonly help: () => void;
  readonly panel: (side: "heads" | "text") => void;
}

/** What is shown, and how: title, search and all choices. */
export class TopBar {
  readonly element: HTMLElement;
  readonly #pool: Switch<Pool>;
  readonly #scaling: Switch<Scaling>;
  readonly #palette: HTMLSelectElement;
  readonly #theme: HTMLButtonElement;
  readonly #save: HTMLDetailsElement;
  readonly #panels: Readonly<Record<"heads" | "text", HTMLButtonElement>>;

  constructor(
    info: Info,
    recordings: readonly RecordingEntry[],
    search: SearchBox,
    events: TopBarEvents,
  ) {
    this.#pool = new Switch(
      "pool",
      "What a cell shows of its pairs",
      [
        { value: "mean", name: "mean" },
        { value: "max", name: "max" },
        ...(info.effects ? [{ value: "effect" as const, name: "effect" }] : []),
      ],
      events.pool,
    );
    this.#scaling = new Switch(
      "scaling",
      "How weights become colours",
      [
        { value: "log", name: "log" },
        { value: "linear", name: "linear" },
      ],
      events.scaling,
    );
    if (info.published) {
      for (const pool of ["mean", "max", ...(info.effects ? ["effect"] : [])] as Pool[]) {
        const missing = !info.published.pools.includes(pool);
        this.#pool.refuse(pool, missing ? "Not in this publication" : "");
      }
    }
    this.#palette = element(
      "select",
      { "aria-label": "Colours", title: "Colours" },
      ...PALETTES.map((palette) => element("option", { value: palette }, palette)),
    );
    this.#palette.addEventListener("change", () => events.palette(this.#palette.value as Palette));
    this.#theme = round("auto", "Theme", events.theme);
    this.#save = saveMenu(events.exporting);
    this.#panels = {
      heads: round("heads", "Show or hide the heads", () => events.panel("heads")),
      text: round("text", "Show or hide the text", () => events.panel("text")),
    };
    const help = element(
      "button",
      { type: "button", class: "round", "aria-label": "Help", title: "Help" },
      "?",
    );
    help.addEventListener("click", events.help);
    const tokens = info.texts.map((text) => count(text.tokens)).join(" + ");
    const about = [info.about.model, `${tokens} tokens`].filter((words) => words !== "");
    this.element = element(
      "header",
      { class: "top-bar" },
      this.#panels.heads,
      element(
        "div",
        { class: "titles" },
        titleOf(info, recordings, events.recording),
        element("p", { class: "about" }, about.join(" · ")),
      ),
      search.element,
      element(
        "div",
        { class: "choices" },
        this.#pool.element,
        this.#scaling.element,
        this.#palette,
      ),
      element("div", { class: "buttons" }, this.#save, this.#theme, help, this.#panels.text),
    );
  }

  show(pool: Pool, scaling: Scaling, palette: Palette): void {
    this.#pool.show(pool);
    this.#scaling.show(scaling);
    this.#palette.value = palette;
  }

  showTheme(theme: Theme): void {
    this.#theme.replaceChildren(icon(theme));
    this.#theme.setAttribute("aria-label", THEME_NAMES[theme]);
    this.#theme.title = THEME_NAMES[theme];
  }

  showPanel(side: "heads" | "text", open: boolean): void {
    this.#panels[side].setAttribute("aria-pressed", String(open));
  }

  openExport(): void {
    this.#save.open = true;
    this.#save.querySelector("button")?.focus();
  }
}

/** The title, or a choice of titles where there are several recordings. */
function titleOf(
  info: Info,
  recordings: readonly RecordingEntry[],
  chosen: (digest: string) => void,
): HTMLElement {
  if (recordings.length < 2) return element("h1", { title: info.title }, info.title);
  const select = element("select", { class: "recordings", "aria-label": "Recording" });
  for (const { digest, title, name } of recordings) {
    const option = element("option", { value: digest }, title || name);
    option.selected = digest === info.digest;
    select.append(option);
  }
  select.addEventListener("change", () => chosen(select.value));
  return element("h1", {}, select);
}

function round(name: Icon, words: string, pressed: () => void): HTMLButtonElement {
  const button = element("button", {
    type: "button",
    class: `round show-${name}`,
    "aria-label": words,
    title: words,
  });
  button.append(icon(name));
  button.addEventListener("click", pressed);
  return button;
}

function saveMenu(exporting: (format: "png" | "svg") => void): HTMLDetailsElement {
  const menu = element("details", { class: "menu" });
  const summary = element("summary", {
    class: "round",
    "aria-label": "Save a picture",
    title: "Save a picture",
  });
  summary.append(icon("save"));
  const item = (format: "png" | "svg", words: string): HTMLButtonElement => {
    const button = element("button", { type: "button", "data-format": format }, words);
    button.addEventListener("click", () => {
      menu.open = false;
      exporting(format);
    });
    return button;
  };
  menu.append(
    summary,
    element("div", { class: "menu-items" }, item("png", "Save as PNG"), item("svg", "Save as SVG")),
  );
  menu.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !menu.open) return;
    menu.open = false;
    summary.focus();
    event.preventDefault();
  });
  document.addEventListener("pointerdown", (event) => {
    if (event.target instanceof Node && !menu.contains(event.target)) menu.open = false;
  });
  return menu;
}
