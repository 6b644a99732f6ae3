/** What the keys of the page do. */
export interface Commands {
  readonly token: (step: number) => void;
  readonly layer: (step: number) => void;
  readonly head: (step: number) => void;
  readonly mean: () => void;
  readonly turn: () => void;
  readonly view: () => void;
  readonly letGo: () => void;
  readonly help: () => void;
}

/** Listen to the keys of the whole page, but for those that a control or a dialog needs itself. */
export function listenToKeys(commands: Commands): void {
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    const target = event.target instanceof Element ? event.target : null;
    if (document.querySelector("dialog[open]")) return;
    const command = commandOf(event, commands);
    if (!command) return;
    if (target?.closest("select, input, textarea, .wide") && /^Arrow|^.$/.test(event.key)) {
      // Arrows choose within these, and letters jump to an option of a list.
      if (event.key.startsWith("Arrow") || target.closest("select")) return;
    }
    event.preventDefault();
    command();
  });
}

function commandOf(event: KeyboardEvent, commands: Commands): (() => void) | null {
  const across = event.shiftKey ? commands.head : commands.token;
  switch (event.key) {
    case "ArrowLeft":
      return () => across(-1);
    case "ArrowRight":
      return () => across(1);
    case "ArrowUp":
      return () => commands.layer(-1);
    case "ArrowDown":
      return () => commands.layer(1);
    case "[":
      return () => commands.head(-1);
    case "]":
      return () => commands.head(1);
    case "m":
      return commands.mean;
    case "r":
      return commands.turn;
    case "t":
      return commands.view;
    case "Escape":
      return commands.letGo;
    case "?":
      return commands.help;
    default:
      return null;
  }
}
