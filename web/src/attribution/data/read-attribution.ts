import { PageError } from "../../page/errors";
import { versioned } from "../../page/versioned";
import { type Attribution, VERSION } from "./contract";

/** The attribution, from its JSON. */
export function readAttribution(json: string): Attribution {
  const found = versioned<Attribution>(json, VERSION, {
    what: "The scores",
    page: "page",
    again: "Write",
  });
  if (!found.passages?.length) throw new PageError("This page has no passages. Write it again.");
  return found;
}
