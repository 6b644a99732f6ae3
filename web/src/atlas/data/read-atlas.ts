import { PageError } from "../../page/errors";
import { parsed } from "../../page/parsed";
import { type Atlas, VERSION } from "./contract";

/** The report, from its JSON. */
export function readAtlas(json: string): Atlas {
  const atlas = parsed<Atlas>(json, "The tables of this report");
  if (atlas.version !== VERSION) {
    throw new PageError(
      `This report was written in version ${String(atlas.version)} of its format, ` +
        `but its script reads version ${VERSION}. Write the report again.`,
    );
  }
  if (!atlas.heads?.length) throw new PageError("This report has no heads. Write it again.");
  return atlas;
}
