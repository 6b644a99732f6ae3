// What Python writes into a page must be whole in itself, safe inside a <script>, and small.

import { readFileSync } from "node:fs";

const LIMIT = 60_000;
const script = readFileSync(new URL("dist/page.js", import.meta.url), "utf8");
const style = readFileSync(new URL("dist/page.css", import.meta.url), "utf8");

const faults = [
  [/<\/script/i, script, "page.js would end the <script> that it stands in"],
  [/<!--/, script, "page.js would start a comment in the HTML"],
  [/\bimport\s*[("'{*]/, script, "page.js imports something"],
  [/\beval\(|new Function\(/, script, "page.js evaluates text as code"],
  [/https?:\/\/(?!www\.w3\.org\/)/, script, "page.js names an address"],
  [/<\/style/i, style, "page.css would end the <style> that it stands in"],
  [/@import|url\((?!["']?data:)/, style, "page.css loads something"],
]
  .filter(([pattern, text]) => pattern.test(text))
  .map(([, , fault]) => fault);

const size = Buffer.byteLength(script) + Buffer.byteLength(style);
if (size > LIMIT) {
  faults.push(`page.js and page.css have ${size} bytes together, more than ${LIMIT}`);
}
for (const fault of faults) {
  console.error(fault);
}
console.log(`page.js and page.css: ${size} bytes`);
process.exitCode = faults.length > 0 ? 1 : 0;
