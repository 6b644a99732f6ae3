// How a piece of text is shown, so that every token can be seen and none can disturb its neighbours.

/** A piece in running text: what stands before its token, the token, and what stands after. */
export interface Shown {
  readonly before: string;
  readonly token: string;
  readonly after: string;
}

const EMPTY = "∅";
const SPACE = "␣";
const NEWLINE = "↵";
const TAB = "⇥";

/** Characters that turn the direction of text or have no width, and would be lost or do harm. */
const NAMES: ReadonlyMap<string, string> = new Map([
  ["\u00ad", "‹SHY›"],
  ["\u061c", "‹ALM›"],
  ["\u200b", "‹ZWSP›"],
  ["\u200e", "‹LRM›"],
  ["\u200f", "‹RLM›"],
  ["\u2028", "‹LS›"],
  ["\u2029", "‹PS›"],
  ["\u202a", "‹LRE›"],
  ["\u202b", "‹RLE›"],
  ["\u202c", "‹PDF›"],
  ["\u202d", "‹LRO›"],
  ["\u202e", "‹RLO›"],
  ["\u2060", "‹WJ›"],
  ["\u2066", "‹LRI›"],
  ["\u2067", "‹RLI›"],
  ["\u2068", "‹FSI›"],
  ["\u2069", "‹PDI›"],
  ["\ufeff", "‹BOM›"],
]);

/** Joiners have a meaning inside a word or an emoji; alone they would not be seen. */
const ALONE: ReadonlyMap<string, string> = new Map([
  ["\u200c", "‹ZWNJ›"],
  ["\u200d", "‹ZWJ›"],
  ["\ufe0e", "‹VS15›"],
  ["\ufe0f", "‹VS16›"],
]);

export function showPiece(piece: string): Shown {
  if (piece === "") return { before: "", token: EMPTY, after: "" };
  const ending = /(?:\r?\n)+$/.exec(piece)?.[0] ?? "";
  const after = ending.replaceAll("\r", "");
  if (/^\s+$/u.test(piece)) return { before: "", token: visible(piece, true), after };
  const before = /^ */.exec(piece)?.[0] ?? "";
  const inner = piece.slice(before.length, piece.length - ending.length);
  return {
    before,
    token: visible(inner, false).replaceAll(NEWLINE, `${NEWLINE}\n`) + NEWLINE.repeat(after.length),
    after,
  };
}

/** Whether nothing of a piece would be seen if it were not made visible. */
export function isBlank(piece: string): boolean {
  return /^[\s\p{C}]*$/u.test(piece);
}

/** A piece on one line, for where it stands alone. */
export function showAlone(piece: string): string {
  return showPiece(piece).token.replaceAll("\n", "");
}

/** Pieces on one line, for what surrounds a token. */
export function showAround(pieces: readonly string[]): string {
  return pieces
    .map((piece) => {
      const { before, token } = showPiece(piece);
      return before + token.replaceAll("\n", "");
    })
    .join("");
}

/** Running text as it stands, with lines and tabs; only what would be lost or do harm is replaced. */
export function showText(text: string): string {
  return text
    .split(/(\r?\n|\t)/)
    .map((part, at) => (at % 2 ? part.replace("\r", "") : visible(part, false)))
    .join("");
}

function visible(text: string, blank: boolean): string {
  const whole = text.replace(/\p{Surrogate}/gu, "\ufffd").replaceAll("\r\n", "\n");
  const only = ALONE.get(whole);
  if (only) return only;
  // A mark that would sit on the letter before it gets a letter of its own.
  const carried = /^\p{M}/u.test(whole) ? `◌${whole}` : whole;
  return carried.replace(/[\p{Cc}\p{Cf}\p{Zs}\p{Zl}\p{Zp}]/gu, (character) => {
    if (character === "\n") return NEWLINE;
    if (character === "\t") return TAB;
    if (character === " ") return blank ? SPACE : " ";
    const name = NAMES.get(character);
    if (name) return name;
    const code = character.charCodeAt(0);
    if (code < 0x20) return String.fromCharCode(0x2400 + code);
    if (code === 0x7f) return "␡";
    if (code < 0xa0) return "\ufffd";
    return blank ? "⍽" : character;
  });
}
