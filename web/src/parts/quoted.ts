import { element } from "../dom/element";
import { showAlone } from "../tokens/visible";

/** A token in the middle of a sentence. */
export function quoted(piece: string | undefined): HTMLElement {
  const made = element("bdi", { class: "quoted" });
  made.textContent = showAlone(piece ?? "");
  return made;
}
