import type { HeadRef, Row } from "./contract";
import { headKey } from "./heads";
import type { Site } from "./site";

/** The strongest keys of the query that was chosen last. */
export class ChosenRow {
  #chosen = "";
  /** Null before it is here. */
  row: Row | null = null;

  constructor(private readonly site: Site) {}

  /** Read a row; false if meanwhile another was chosen. */
  async read(ref: HeadRef, query: number | null): Promise<boolean> {
    const chosen = query === null ? "" : `${headKey(ref)}/${query}`;
    if (chosen !== this.#chosen) this.row = null;
    this.#chosen = chosen;
    if (query === null || this.row) return true;
    const block = await this.site.rows(headKey(ref), query);
    if (chosen !== this.#chosen) return false;
    this.row = block.rows[query - block.first] ?? null;
    return true;
  }
}
