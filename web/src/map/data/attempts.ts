import { PATIENCE, SiteError } from "./errors";

interface Attempt {
  readonly work: () => Promise<unknown>;
  failed: boolean;
  timer?: ReturnType<typeof setTimeout>;
}

/** Work that is tried until it is done; what is begun under a name replaces what was before. */
export class Attempts {
  readonly #attempts = new Map<string, Attempt>();

  constructor(
    /** Told what is wrong with the work of a name; null when nothing is any more. */
    private readonly report: (name: string, words: string | null) => void,
  ) {}

  start(name: string, work: () => Promise<unknown>): void {
    this.stop(name);
    const attempt: Attempt = { work, failed: false };
    this.#attempts.set(name, attempt);
    void this.#try(name, attempt);
  }

  /** Nobody needs it any more. */
  stop(name: string): void {
    const attempt = this.#attempts.get(name);
    if (!attempt) return;
    clearTimeout(attempt.timer);
    this.#attempts.delete(name);
    if (attempt.failed) this.report(name, null);
  }

  /** Try everything again that failed, now. */
  retry(): void {
    for (const [name, { failed, work }] of [...this.#attempts]) if (failed) this.start(name, work);
  }

  async #try(name: string, attempt: Attempt): Promise<void> {
    try {
      await attempt.work();
      if (this.#attempts.get(name) === attempt) this.stop(name);
    } catch (error) {
      if (this.#attempts.get(name) === attempt) this.#fail(name, attempt, error);
    }
  }

  /** A server that does not answer, or not now, is asked again; one that is only busy is no error. */
  #fail(name: string, attempt: Attempt, error: unknown): void {
    const { waiting, retryAfter } =
      error instanceof SiteError ? error : { waiting: false, retryAfter: null };
    if (retryAfter === null) {
      attempt.failed = true;
      this.report(name, error instanceof Error ? error.message : String(error));
    }
    if (!waiting) return;
    const seconds = retryAfter ?? PATIENCE;
    attempt.timer = setTimeout(() => void this.#try(name, attempt), 1000 * seconds);
  }
}
