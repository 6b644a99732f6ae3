// How pieces follow one another in running text.

/** Longer words may break: a line may be too short for them. */
const LONGEST_WORD = 24;
/** Lines of a hard-wrapped text are about so long. */
const SHORTEST_LINE = 50;
const LONGEST_LINE = 120;

/** Scripts in which a line may break between any two letters. */
const BREAKS_ANYWHERE =
  /[\p{sc=Han}\p{sc=Hiragana}\p{sc=Katakana}\p{sc=Thai}\p{sc=Lao}\p{sc=Khmer}]/u;

/** Whether a piece goes on with the word that the text before it ends with. */
export function continuesWord(word: string, piece: string): boolean {
  if (word.length + piece.length > LONGEST_WORD || BREAKS_ANYWHERE.test(word + piece)) return false;
  return /[\p{L}\p{M}\p{N}'’]$/u.test(word) && /^[\p{L}\p{M}\p{N}'’]/u.test(piece);
}

/** Whether the lines of a text were broken at a width, and not where sentences or verses end. */
export function isHardWrapped(pieces: readonly string[]): boolean {
  const lines = pieces.join("").split("\n");
  const wrapped = lines
    .filter((line, at) => line !== "" && /^ ?\S/.test(lines[at + 1] ?? ""))
    .map((line) => line.length)
    .sort((a, b) => a - b);
  const middle = wrapped[wrapped.length >> 1] ?? 0;
  return wrapped.length >= 3 && middle >= SHORTEST_LINE && (wrapped.at(-1) ?? 0) <= LONGEST_LINE;
}
