/** Something is wrong with the page itself; the message is for the person who reads it. */
export class PageError extends Error {
  override name = "PageError";
}

/** Words for any error, for the person who reads the page. */
export function inWords(error: unknown): string {
  if (error instanceof PageError) return error.message;
  return `Something went wrong: ${error instanceof Error ? error.message : String(error)}`;
}
