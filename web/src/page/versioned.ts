import { PageError } from "./errors";
import { parsed } from "./parsed";

/** What a page holds as JSON, written in the version of its format that the script reads. */
export function versioned<T extends { readonly version: number }>(
  json: string,
  version: number,
  { what, page, again }: { what: string; page: string; again: string },
): T {
  const data = parsed<T>(json, `${what} of this ${page}`);
  if (data.version !== version) {
    throw new PageError(
      `This ${page} was written in version ${String(data.version)} of its format, ` +
        `but its script reads version ${version}. ${again} the ${page} again.`,
    );
  }
  return data;
}
