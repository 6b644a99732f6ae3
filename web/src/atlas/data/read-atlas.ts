import { PageError } from "../../page/errors";
import { versioned } from "../../page/versioned";
import { type Atlas, VERSION } from "./contract";

/** The report, from its JSON. */
export function readAtlas(json: string): Atlas {
  const atlas = versioned<Atlas>(json, VERSION, {
    what: "The tables",
    page: "report",
    again: "Write",
  });
  if (!atlas.heads?.length) throw new PageError("This report has no heads. Write it again.");
  return atlas;
}
