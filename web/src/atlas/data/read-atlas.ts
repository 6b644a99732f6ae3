import { Trouble } from "../../page/trouble";
import { type Atlas, VERSION } from "./contract";

/** The report, from its JSON. */
export function readAtlas(json: string): Atlas {
  const atlas = parse(json);
  if (atlas.version !== VERSION) {
    throw new Trouble(
      `This report was written in version ${String(atlas.version)} of its format, ` +
        `but its script reads version ${VERSION}. Write the report again.`,
    );
  }
  if (!atlas.heads?.length) throw new Trouble("This report has no heads. Write it again.");
  return atlas;
}

function parse(json: string): Atlas {
  try {
    const atlas: unknown = JSON.parse(json);
    if (typeof atlas === "object" && atlas !== null) return atlas as Atlas;
  } catch {
    // Told below.
  }
  throw new Trouble("The tables of this report cannot be read: the file is damaged or cut short.");
}
