/** What the keys of the report do, wherever one is. */
export interface Commands {
  readonly head: (step: number) => void;
  readonly measure: (step: number) => void;
  readonly letGo: () => void;
  readonly help: () => void;
}

/** Listen to the keys of the whole page, but for those that a control or a dialog needs itself. */
export function listenToKeys(commands: Commands): void {
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    const target = event.target instanceof Element ? event.target : null;
    if (document.querySelector("dialog[open]") || target?.closest("select, input")) return;
    const command = {
      "[": () => commands.head(-1),
      "]": () => commands.head(1),
      m: () => commands.measure(1),
      M: () => commands.measure(-1),
      Escape: commands.letGo,
      "?": commands.help,
    }[event.key];
    if (!command) return;
    event.preventDefault();
    command();
  });
}
