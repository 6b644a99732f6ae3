// What Python writes into a page or serves must be whole in itself, safe where it stands, and small.

import { readFileSync } from "node:fs";

const PAGE_LIMIT = 60_000;
const MAP_LIMIT = 3_000_000;

const read = (name) => readFileSync(new URL(`dist/${name}`, import.meta.url), "utf8");
const size = (...texts) => texts.reduce((sum, text) => sum + Buffer.byteLength(text), 0);
const script = read("page.js");
const style = read("page.css");
const mapScript = read("map.js");
const mapStyle = read("map.css");
const mapPage = read("map.html");

const faults = [
  [/<\/script/i, script, "page.js would end the <script> that it stands in"],
  [/<!--/, script, "page.js would start a comment in the HTML"],
  [/\bimport\s*[("'{*]/, script, "page.js imports something"],
  [/\beval\(|new Function\(/, script, "page.js evaluates text as code"],
  [/https?:\/\/(?!www\.w3\.org\/)/, script, "page.js names an address"],
  [/<\/style/i, style, "page.css would end the <style> that it stands in"],
  [/@import|url\((?!["']?data:)/, style, "page.css loads something"],
  [/@import|url\((?!["']?data:)/, mapStyle, "map.css loads something"],
  [/https?:|\/\//, mapPage, "map.html names an address"],
]
  .filter(([pattern, text]) => pattern.test(text))
  .map(([, , fault]) => fault);

if (!mapScript.startsWith("/*!") || !mapScript.includes("higlass 2.")) {
  faults.push("map.js does not say whose work is in it");
}
const pageSize = size(script, style);
if (pageSize > PAGE_LIMIT) {
  faults.push(`page.js and page.css have ${pageSize} bytes together, more than ${PAGE_LIMIT}`);
}
const mapSize = size(mapScript, mapStyle, mapPage);
if (mapSize > MAP_LIMIT) {
  faults.push(`the map has ${mapSize} bytes, more than ${MAP_LIMIT}`);
}
for (const fault of faults) {
  console.error(fault);
}
console.log(`page.js and page.css: ${pageSize} bytes; the map: ${mapSize} bytes`);
process.exitCode = faults.length > 0 ? 1 : 0;
