import { element } from "../dom/element";
import { continuesWord, isHardWrapped } from "../tokens/flow";
import { showPiece } from "../tokens/visible";
import { tokenElement } from "./token-strip";

/** Some lines of a text. The browser lays out only those chunks that are in sight. */
export interface Chunk {
  readonly element: HTMLElement;
  /** Number of its first token, and how many it has. */
  readonly first: number;
  readonly length: number;
}

/** A chunk ends with the first line that ends after so many tokens. */
const TOKENS = 64;
/** Where lines go on, it ends in the middle of one after so many. */
const LONGEST = 512;
/** About so many letters are in a line, and a line is about so high: until it is laid out. */
const LETTERS = 72;
const LINE = 32;

/** Running text in chunks. Chunks are parted only where lines are, so that none can be seen. */
export function layChunks(pieces: readonly string[]): { chunks: Chunk[]; tokens: HTMLElement[] } {
  const chunks: Chunk[] = [];
  const tokens: HTMLElement[] = [];
  let inner: (Node | string)[] = [];
  let first = 0;
  let lines = 0;
  let letters = 0;
  const close = (): void => {
    const height = Math.ceil(lines + letters / LETTERS + 0.5) * LINE;
    const made = element("div", { class: "chunk", role: "presentation" }, ...inner);
    made.style.containIntrinsicBlockSize = `auto ${height}px`;
    chunks.push({ element: made, first, length: tokens.length - first });
    inner = [];
    first = tokens.length;
    lines = 0;
    letters = 0;
  };
  const wrapped = isHardWrapped(pieces);
  let word = "";
  for (const [index, piece] of pieces.entries()) {
    const shown = showPiece(piece);
    const token = tokenElement(shown.token, piece, index);
    tokens.push(token);
    if (shown.before) inner.push(shown.before);
    if (continuesWord(word, piece)) {
      word += piece;
      const last = inner.at(-1) as HTMLElement;
      if (last.className === "word") last.append(token);
      else inner.splice(-1, 1, element("span", { class: "word" }, last, token));
    } else {
      word = piece.trimStart();
      inner.push(token);
    }
    letters += piece.length;
    if (!shown.after) continue;
    // A line that was broken at a width goes on, lest it break here and there.
    const next = pieces[index + 1] ?? "";
    const goesOn = wrapped && shown.after === "\n" && /^ ?\S/.test(next);
    const full = tokens.length - first >= (goesOn ? LONGEST : TOKENS);
    lines += goesOn ? 0 : shown.after.length * 0.7;
    if (!goesOn || full) inner.push(shown.after);
    else if (!next.startsWith(" ")) inner.push(" ");
    if (full) close();
  }
  if (inner.length > 0) close();
  return { chunks, tokens };
}
