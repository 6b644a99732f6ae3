import { PageError } from "./errors";

/** The bytes behind base64 of zlib data; `what` names them if they cannot be read. */
export async function unpack(base64: string, what: string): Promise<Uint8Array> {
  if (typeof DecompressionStream === "undefined") {
    throw new PageError("This browser is too old for this page. Any browser since 2024 shows it.");
  }
  try {
    const packed = new Blob([fromBase64(base64)]).stream();
    const inflated = packed.pipeThrough(new DecompressionStream("deflate"));
    return new Uint8Array(await new Response(inflated).arrayBuffer());
  } catch {
    throw new PageError(`The ${what} cannot be read: the file is damaged or cut short.`);
  }
}

function fromBase64(base64: string): Uint8Array<ArrayBuffer> {
  const characters = atob(base64);
  const bytes = new Uint8Array(characters.length);
  for (let i = 0; i < characters.length; i++) bytes[i] = characters.charCodeAt(i);
  return bytes;
}
