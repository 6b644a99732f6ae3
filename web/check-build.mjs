// What Python writes into a page or serves must be whole in itself, safe where it stands, and small.

import { readFileSync } from "node:fs";

// With the data of a sentence in six layers of twelve heads, a page is to stay within 0.15 MB.
const PAGE_LIMIT = 82_000;
const ATLAS_LIMIT = 60_000;
const ATTRIBUTION_LIMIT = 60_000;
const MAP_LIMIT = 150_000;
const ENGINE_LIMIT = 3_000_000;

const read = (name) => readFileSync(new URL(`dist/${name}`, import.meta.url), "utf8");
const size = (...texts) => texts.reduce((sum, text) => sum + Buffer.byteLength(text), 0);
const script = read("page.js");
const style = read("page.css");
const atlasScript = read("atlas.js");
const atlasStyle = read("atlas.css");
const attributionScript = read("attribution.js");
const attributionStyle = read("attribution.css");
const mapScript = read("map.js");
const mapStyle = read("map.css");
const mapPage = read("map.html");
const engine = read("engine.js");

const inHtml = (name, script, style) => [
  [/<\/script/i, script, `${name}.js would end the <script> that it stands in`],
  [/<!--/, script, `${name}.js would start a comment in the HTML`],
  [/\bimport\s*[("'{*]/, script, `${name}.js imports something`],
  [/\beval\(|new Function\(/, script, `${name}.js evaluates text as code`],
  [/https?:\/\/(?!www\.w3\.org\/)/, script, `${name}.js names an address`],
  [/<\/style/i, style, `${name}.css would end the <style> that it stands in`],
  [/@import|url\((?!["']?data:)/, style, `${name}.css loads something`],
];

const faults = [
  ...inHtml("page", script, style),
  ...inHtml("atlas", atlasScript, atlasStyle),
  ...inHtml("attribution", attributionScript, attributionStyle),
  [/@import|url\((?!["']?data:)/, mapStyle, "map.css loads something"],
  [/https?:|\/\//, mapPage, "map.html names an address"],
]
  .filter(([pattern, text]) => pattern.test(text))
  .map(([, , fault]) => fault);

if (!engine.startsWith("/*!") || !engine.includes("higlass 2.")) {
  faults.push("engine.js does not say whose work is in it");
}
const pageSize = size(script, style);
if (pageSize > PAGE_LIMIT) {
  faults.push(`page.js and page.css have ${pageSize} bytes together, more than ${PAGE_LIMIT}`);
}
const atlasSize = size(atlasScript, atlasStyle);
if (atlasSize > ATLAS_LIMIT) {
  faults.push(`atlas.js and atlas.css have ${atlasSize} bytes together, more than ${ATLAS_LIMIT}`);
}
const attributionSize = size(attributionScript, attributionStyle);
if (attributionSize > ATTRIBUTION_LIMIT) {
  faults.push(
    `attribution.js and attribution.css have ${attributionSize} bytes together, ` +
      `more than ${ATTRIBUTION_LIMIT}`,
  );
}
const mapSize = size(mapScript, mapStyle, mapPage);
if (mapSize > MAP_LIMIT) {
  faults.push(`the map has ${mapSize} bytes without its engine, more than ${MAP_LIMIT}`);
}
const engineSize = size(engine);
if (engineSize > ENGINE_LIMIT) {
  faults.push(`the engine of the map has ${engineSize} bytes, more than ${ENGINE_LIMIT}`);
}
for (const fault of faults) {
  console.error(fault);
}
console.log(
  `page.js and page.css: ${pageSize} bytes; atlas.js and atlas.css: ${atlasSize} bytes; ` +
    `attribution.js and attribution.css: ${attributionSize} bytes; ` +
    `the map: ${mapSize} bytes, and ${engineSize} of its engine`,
);
process.exitCode = faults.length > 0 ? 1 : 0;
