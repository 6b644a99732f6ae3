import { type PageData, VERSION } from "./contract";
import { PageError } from "./errors";
import { versioned } from "./versioned";

/** The description of the page, from its JSON. */
export function readPage(json: string): PageData {
  const page = versioned<PageData>(json, VERSION, {
    what: "The description",
    page: "page",
    again: "Save",
  });
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
