import { own } from "./own";

/** Listen to keys on the whole page, but for those that a control or a dialog needs itself. */
export function listenToKeys(commands: Readonly<Record<string, () => void>>): void {
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    const target = event.target instanceof Element ? event.target : null;
    if (document.querySelector("dialog[open]") || target?.closest("select, input")) return;
    const command = own(commands, event.key);
    if (!command) return;
    event.preventDefault();
    command();
  });
}
