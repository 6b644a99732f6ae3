import type { HeadRef, Row } from "./contract";
import { headKey, sameHead } from "./heads";
import type { Site } from "./site";

/** The strongest keys of the query that was chosen last. */
export class ChosenRow {
  #ref: HeadRef | null = null;
  #query: number | null = null;
  row: Row | null = null;

  constructor(private readonly site: Site) {}

  /** Read a row; false if it is known already or if meanwhile another was chosen. */
  async read(ref: HeadRef, query: number | null): Promise<boolean> {
    if (query === this.#query && this.#ref && sameHead(ref, this.#ref)) return false;
    this.#ref = ref;
    this.#query = query;
    this.row = null;
    // The mean of everything has no rows.
    if (query === null || ref.call === "all") return true;
    let block: Awaited<ReturnType<Site["rows"]>>;
    try {
      block = await this.site.rows(headKey(ref), query);
    } catch (error) {
      this.#query = null;
      throw error;
    }
    if (this.#query !== query || this.#ref !== ref) return false;
    this.row = block.rows[query - block.first] ?? null;
    return true;
  }
}
