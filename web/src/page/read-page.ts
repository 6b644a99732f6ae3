import { type PageData, VERSION } from "./contract";
import { PageError } from "./errors";
import { parsed } from "./parsed";

/** The description of the page, from its JSON. */
export function readPage(json: string): PageData {
  const page = parsed<PageData>(json, "The description of this page");
  if (page.version !== VERSION) {
    throw new PageError(
      `This page was written in version ${String(page.version)} of its format, ` +
        `but its script reads version ${VERSION}. Save the page again.`,
    );
  }
  if (!page.texts?.length || !page.layers?.length) {
    throw new PageError("This page has no text or no layers. Save the page again.");
  }
  for (const block of [...page.layers, ...page.averages]) {
    if (!page.texts[block.queries] || !page.texts[block.keys]) {
      throw new PageError("A layer of this page has no text. Save the page again.");
    }
  }
  return page;
}
