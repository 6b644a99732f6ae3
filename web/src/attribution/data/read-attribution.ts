import { PageError } from "../../page/errors";
import { parsed } from "../../page/parsed";
import { type Attribution, VERSION } from "./contract";

/** The attribution, from its JSON. */
export function readAttribution(json: string): Attribution {
  const found = parsed<Attribution>(json, "The scores of this page");
  if (found.version !== VERSION) {
    throw new PageError(
      `This page was written in version ${String(found.version)} of its format, ` +
        `but its script reads version ${VERSION}. Write the page again.`,
    );
  }
  if (!found.passages?.length) throw new PageError("This page has no passages. Write it again.");
  return found;
}
