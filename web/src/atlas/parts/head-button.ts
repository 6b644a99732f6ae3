import { element } from "../../dom/element";
import type { Head } from "../data/contract";
import { longName, shortName } from "../look/names";

/** A head to go to: "5.11". */
export function headButton(head: Head, go: () => void, words = ""): HTMLButtonElement {
  // Begins with what is seen, so that it can be called by voice.
  const name = `${[shortName(head), words].join(" ").trim()}, ${longName(head)}`;
  const made = element(
    "button",
    { type: "button", class: "head-button", "aria-label": name },
    element("b", {}, shortName(head)),
  );
  if (words) made.append(" ", element("span", {}, words));
  made.addEventListener("click", go);
  return made;
}
