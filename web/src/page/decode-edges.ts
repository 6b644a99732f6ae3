import { Edges } from "./edges";
import { PageError } from "./errors";

/** The shape of the sections of one layer. */
export interface Shape {
  readonly queries: number;
  readonly keys: number;
  readonly sections: number;
  readonly weightBits: 8 | 16;
  /** The largest effect by size; null for weights. */
  readonly largest: number | null;
  /** Names the layer in messages. */
  readonly what: string;
}

/** Where each section starts; checks that the bytes are as many as they should be. */
export function findSections(bytes: Uint8Array, shape: Shape): number[] {
  const starts: number[] = [];
  let at = 0;
  for (let section = 0; section < shape.sections; section++) {
    starts.push(at);
    if (at + shape.queries > bytes.length) throw tooShort(shape);
    at += shape.queries + total(bytes, at, shape.queries) * bytesOfEntry(shape);
  }
  if (at > bytes.length) throw tooShort(shape);
  if (at < bytes.length) throw damaged(shape);
  return starts;
}

/** The weights of the section that starts at `start`. */
export function decodeSection(bytes: Uint8Array, start: number, shape: Shape): Edges {
  const { queries, keys, weightBits, largest } = shape;
  const counts = bytes.subarray(start, start + queries);
  const starts = new Uint32Array(queries + 1);
  let most = 0;
  for (let query = 0; query < queries; query++) {
    const count = counts[query] as number;
    starts[query + 1] = (starts[query] as number) + count;
    if (count > most) most = count;
  }
  const entries = starts[queries] as number;
  const low = start + queries;
  const high = low + entries;
  const weight = high + entries;
  const targets = new Uint32Array(entries);
  const weights = new Float32Array(entries);
  let entry = 0;
  for (let rank = 0; rank < most; rank++) {
    for (let query = 0; query < queries; query++) {
      if ((counts[query] as number) <= rank) continue;
      const code = (bytes[low + entry] as number) | ((bytes[high + entry] as number) << 8);
      const key = keyOf(code, query);
      if (key < 0 || key >= keys) throw damaged(shape);
      const place = (starts[query] as number) + rank;
      targets[place] = key;
      const first = bytes[weight + entry] as number;
      if (weightBits === 8) weights[place] = (first / 255) ** 2;
      else {
        const steps = first | ((bytes[weight + entries + entry] as number) << 8);
        weights[place] = largest === null ? steps / 65535 : ((steps - 32768) / 32767) * largest;
      }
      entry++;
    }
  }
  return new Edges(queries, keys, starts, targets, weights, largest);
}

/** Codes from here up name the first four keys, which many heads look at. */
const FIRST_KEYS = 65532;

function keyOf(code: number, query: number): number {
  if (code >= FIRST_KEYS) return 65535 - code;
  return query - (code % 2 === 0 ? code / 2 : -(code + 1) / 2);
}

function total(bytes: Uint8Array, start: number, queries: number): number {
  let sum = 0;
  for (let query = 0; query < queries; query++) sum += bytes[start + query] as number;
  return sum;
}

function bytesOfEntry(shape: Shape): number {
  return 2 + shape.weightBits / 8;
}

function tooShort(shape: Shape): PageError {
  return new PageError(`The weights of ${shape.what} are cut short. Save the page again.`);
}

function damaged(shape: Shape): PageError {
  return new PageError(`The weights of ${shape.what} are damaged. Save the page again.`);
}
