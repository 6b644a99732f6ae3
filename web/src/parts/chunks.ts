import { element } from "../dom/element";
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
  for (const [index, piece] of pieces.entries()) {
    const shown = showPiece(piece);
    const token = tokenElement(shown.token, piece, index);
    tokens.push(token);
    if (shown.before) inner.push(shown.before);
    inner.push(token);
    letters += piece.length;
    if (!shown.after) continue;
    lines += shown.after.length * 0.7;
    inner.push(shown.after);
    if (tokens.length - first >= TOKENS) close();
  }
  if (inner.length > 0) close();
  return { chunks, tokens };
}
