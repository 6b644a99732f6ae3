/** What went wrong, in words for people; `waiting` says that trying again may help. */
export class SiteError extends Error {
  constructor(
    words: string,
    readonly waiting: boolean,
    /** After how many seconds to ask again, where the server said so. */
    readonly retryAfter: number | null = null,
  ) {
    super(words);
  }
}

/** After a failure, wait so many seconds before the same is asked for again. */
export const PATIENCE = 3;

const GONE =
  "The map gets no answer from its server. Is `regard map` still running? It will be asked again.";

/** Fetch a part of the site; what is not there or not well is a `SiteError`. */
export async function ask(url: string, signal?: AbortSignal): Promise<Response> {
  let answer: Response;
  try {
    answer = await fetch(url, signal ? { signal } : {});
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new SiteError(GONE, true);
  }
  if (answer.ok) return answer;
  const words = await saidIn(answer);
  if (answer.status === 503) {
    const seconds = Number(answer.headers.get("Retry-After") ?? "1");
    throw new SiteError(words, true, Number.isFinite(seconds) ? seconds : 1);
  }
  throw new SiteError(words, answer.status >= 500);
}

async function saidIn(answer: Response): Promise<string> {
  try {
    const said: unknown = await answer.json();
    const words = (said as { error?: unknown }).error;
    if (typeof words === "string") return words;
  } catch {
    // Not every host says what is wrong in JSON.
  }
  const { pathname } = new URL(answer.url);
  if (answer.status === 404) return `${pathname} is not there. Was the folder published whole?`;
  return `The server answered with ${answer.status} for ${pathname}.`;
}
