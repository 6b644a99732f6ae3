/** What the keys of the page do, wherever one is. */
export interface Commands {
  readonly passage: (step: number) => void;
  readonly letGo: () => void;
  readonly help: () => void;
}

/** Listen to the keys of the whole page, but for those that a dialog needs itself. */
export function listenToKeys(commands: Commands): void {
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    if (document.querySelector("dialog[open]")) return;
    const command = {
      "[": () => commands.passage(-1),
      "]": () => commands.passage(1),
      Escape: commands.letGo,
      "?": commands.help,
    }[event.key];
    if (!command) return;
    event.preventDefault();
    command();
  });
}
