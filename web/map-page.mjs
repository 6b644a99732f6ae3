// The page of the map, which names all that it loads with a version; and small copies to send.

import { createHash } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { gzipSync } from "node:zlib";

let page = readFileSync("src/map/map.html", "utf8");
for (const name of ["map.css", "map.js", "engine.js"]) {
  const body = readFileSync(`dist/${name}`);
  const version = createHash("sha256").update(body).digest("hex").slice(0, 16);
  if (page.split(`"${name}"`).length !== 2) throw new Error(`map.html does not load ${name} once`);
  page = page.replace(`"${name}"`, `"${name}?v=${version}"`);
  writeFileSync(`dist/${name}.gz`, gzipSync(body, { level: 9 }));
}
writeFileSync("dist/map.html", page);
