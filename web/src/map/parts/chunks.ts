/** Some lines of a text: numbers of its first token and of the one after its last. */
export interface Chunk {
  readonly first: number;
  readonly end: number;
  /** How high it would be, in lines, if a line had so many letters. */
  readonly lines: (letters: number) => number;
}

/** A chunk ends with the first line that ends after so many tokens, or else after more. */
const TOKENS = 96;
const MOST_TOKENS = 400;

/** Cut a text where its lines end, so that the cuts can't be seen. */
export function cut(pieces: readonly string[]): Chunk[] {
  const chunks: Chunk[] = [];
  let first = 0;
  let letters = 0;
  let breaks = 0;
  const close = (end: number): void => {
    const [all, ends] = [letters, breaks];
    chunks.push({ first, end, lines: (each) => Math.max(1, Math.ceil(all / each + 0.6 * ends)) });
    first = end;
    letters = 0;
    breaks = 0;
  };
  for (let index = 0; index < pieces.length; index++) {
    const piece = pieces[index] as string;
    letters += piece.length;
    const ends = piece.endsWith("\n");
    if (ends) breaks += 1;
    const tokens = index + 1 - first;
    if ((ends && tokens >= TOKENS) || tokens >= MOST_TOKENS) close(index + 1);
  }
  if (first < pieces.length) close(pieces.length);
  return chunks;
}
