import type { Call } from "./contract";
import type { Site } from "./site";

/** The texts that are here already, by their numbers. */
export class Texts {
  readonly pieces = new Map<number, readonly string[]>();

  constructor(private readonly site: Site) {}

  /** The name and the pieces of a text, once it is here. */
  get(number: number): { name: string; pieces: readonly string[] } | null {
    const pieces = this.pieces.get(number);
    return pieces ? { name: this.site.info.texts[number]?.name ?? "text", pieces } : null;
  }

  /** Get the texts of calls: those that look and those that are looked at. */
  async load(...calls: readonly Call[]): Promise<void> {
    for (const number of new Set(calls.flatMap((call) => [call.queryText, call.keyText]))) {
      this.pieces.set(number, await this.site.text(number));
    }
  }
}
