import { PageError } from "./errors";

/** What a file has, from its JSON. */
export function parsed<T extends object>(json: string, what: string): T {
  try {
    const found: unknown = JSON.parse(json);
    if (typeof found === "object" && found !== null) return found as T;
  } catch {
    // Told below.
  }
  throw new PageError(`${what} cannot be read: the file is damaged or cut short.`);
}
