import { PALETTES, type Palette } from "../colours/palettes";
import type { Scaling } from "../colours/range";
import type { HeadRef, Info, Pool } from "../data/contract";
import { firstHead, headFromKey, headKey, isThere, poolsOf } from "../data/heads";
import type { Domain } from "./camera";

/** What is being looked at: all that a link restores. */
export interface Look {
  /** The digest of the recording. */
  readonly recording: string;
  /** The heads whose maps are shown, one to four; keys and the text are about the first. */
  readonly heads: readonly HeadRef[];
  /** What is seen of the matrix; null is the whole. */
  readonly domain: Domain | null;
  readonly pool: Pool;
  readonly scaling: Scaling;
  readonly palette: Palette;
  readonly query: number | null;
}

export const MOST_MAPS = 4;

/** What is shown where nothing else is asked for. */
export function usualLook(info: Info): Look {
  return {
    recording: info.digest,
    heads: [firstHead(info)],
    domain: null,
    pool: poolsOf(info).includes("max") ? "max" : "mean",
    scaling: "log",
    palette: "ember",
    query: null,
  };
}

export function toAddress(look: Look): string {
  const fields = [
    `recording=${look.recording}`,
    `heads=${look.heads.map(headKey).join(",")}`,
    `pool=${look.pool}`,
    `scale=${look.scaling}`,
    `colours=${look.palette}`,
  ];
  if (look.domain) {
    fields.push(`x=${look.domain.x.map(short).join(",")}`);
    fields.push(`y=${look.domain.y.map(short).join(",")}`);
  }
  if (look.query !== null) fields.push(`query=${look.query}`);
  return fields.join("&");
}

/** Thousandths of a token can't be seen. */
function short(place: number): string {
  return String(Number(place.toFixed(3)));
}

/** The recording that an address names, or null. */
export function recordingIn(hash: string): string | null {
  return new URLSearchParams(hash.replace(/^#/, "")).get("recording");
}

type Change = { -readonly [Name in keyof Look]?: Look[Name] };

/** What an address says; whatever does not fit the recording is left out. */
export function fromAddress(hash: string, info: Info): Change {
  const fields = new URLSearchParams(hash.replace(/^#/, ""));
  const found: Change = {};
  const heads = (fields.get("heads") ?? "")
    .split(",")
    .map(headFromKey)
    .filter((ref): ref is HeadRef => ref !== null && isThere(info, ref));
  if (heads.length > 0) found.heads = heads.slice(0, MOST_MAPS);
  const pool = poolsOf(info).find((each) => each === fields.get("pool"));
  if (pool) found.pool = pool;
  const scaling = fields.get("scale");
  if (scaling === "log" || scaling === "linear") found.scaling = scaling;
  const palette = PALETTES.find((each) => each === fields.get("colours"));
  if (palette) found.palette = palette;
  const x = stretch(fields.get("x"));
  const y = stretch(fields.get("y"));
  found.domain = x && y ? { x, y } : null;
  const query = fields.get("query");
  const isPlace = query !== null && /^\d{1,12}$/.test(query);
  const call = info.calls[heads[0]?.call === "all" ? 0 : (heads[0]?.call ?? 0)];
  found.query = isPlace && Number(query) < (call?.queries ?? 0) ? Number(query) : null;
  return found;
}

function stretch(words: string | null): readonly [number, number] | null {
  const numbers = (words ?? "").split(",").map(Number);
  const [from, to] = numbers;
  if (numbers.length !== 2 || from === undefined || to === undefined) return null;
  return Number.isFinite(from) && Number.isFinite(to) && to > from ? [from, to] : null;
}
