import { own } from "../../dom/own";
/** What the keys of the map do. */
export interface Commands {
  readonly zoom: (factor: number) => void;
  readonly pan: (stepsX: number, stepsY: number) => void;
  readonly whole: () => void;
  readonly deepest: () => void;
  readonly head: (step: number) => void;
  readonly layer: (step: number) => void;
  readonly pool: () => void;
  readonly scaling: () => void;
  readonly theme: () => void;
  readonly search: () => void;
  readonly exporting: () => void;
  readonly letGo: () => void;
  readonly help: () => void;
}

const ZOOM = 1.5;

/** Listen to the keys of the whole page, but for those that a control or a dialog needs itself. */
export function listenToKeys(commands: Commands): void {
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    if (document.querySelector("dialog[open]")) return;
    const target = event.target instanceof Element ? event.target : null;
    if (target?.closest("select, input[type=search], textarea")) return;
    // Arrows choose within these.
    if (event.key.startsWith("Arrow") && target?.closest("input, [role=grid], [role=listbox]")) {
      return;
    }
    const command = commandOf(event.key, commands);
    if (!command) return;
    event.preventDefault();
    command();
  });
}

function commandOf(key: string, commands: Commands): (() => void) | undefined {
  const known: Readonly<Record<string, () => void>> = {
    "+": () => commands.zoom(ZOOM),
    "=": () => commands.zoom(ZOOM),
    "-": () => commands.zoom(1 / ZOOM),
    _: () => commands.zoom(1 / ZOOM),
    ArrowLeft: () => commands.pan(-1, 0),
    ArrowRight: () => commands.pan(1, 0),
    ArrowUp: () => commands.pan(0, -1),
    ArrowDown: () => commands.pan(0, 1),
    "0": commands.whole,
    d: commands.deepest,
    "[": () => commands.head(-1),
    "]": () => commands.head(1),
    "{": () => commands.layer(-1),
    "}": () => commands.layer(1),
    m: commands.pool,
    l: commands.scaling,
    t: commands.theme,
    "/": commands.search,
    e: commands.exporting,
    Escape: commands.letGo,
    "?": commands.help,
  };
  return own(known, key);
}
