import { existsSync, readdirSync, readFileSync } from "node:fs";

/** What the map is built of; what these depend on is found from here. */
const ROOTS = ["@pixi/unsafe-eval", "higlass", "pixi.js", "react", "react-dom"];

interface Package {
  readonly name: string;
  readonly version: string;
  readonly license?: string;
  readonly dependencies?: Readonly<Record<string, string>>;
}

/**
 * Write whose work is in the map, and under which licences, as a comment that stands at its top.
 *
 * Packages with the same words of a licence stand together, each with its copyright.
 */
export function notices(): string {
  const texts = new Map<string, string[]>();
  for (const { name, version, license } of allPackages()) {
    const { copyright, terms } = licenceOf(name, license ?? "unknown");
    const line = [`${name} ${version}`, ...copyright].join(", ");
    texts.set(terms, [...(texts.get(terms) ?? []), line]);
  }
  const parts = [...texts].map(([terms, names]) => `${names.join("\n")}\n\n${terms}`);
  const words = ["The map of Regard contains these packages.", ...parts].join("\n\n----\n\n");
  return `/*!\n${words.replaceAll("*/", "* /")}\n*/`;
}

function allPackages(): Package[] {
  const found = new Map<string, Package>();
  const wanted = [...ROOTS];
  for (let name = wanted.pop(); name !== undefined; name = wanted.pop()) {
    if (found.has(name)) continue;
    const known = JSON.parse(readFileSync(`node_modules/${name}/package.json`, "utf8")) as Package;
    found.set(name, known);
    wanted.push(...Object.keys(known.dependencies ?? {}));
  }
  return [...found.values()].sort((one, other) => one.name.localeCompare(other.name, "en"));
}

/** The lines that claim copyright, and the terms without them. */
function licenceOf(name: string, declared: string): { copyright: string[]; terms: string } {
  const folder = `node_modules/${name}`;
  const file = readdirSync(folder).find((each) => /^licen[cs]e/i.test(each));
  if (!file || !existsSync(`${folder}/${file}`)) return { copyright: [], terms: declared };
  const lines = readFileSync(`${folder}/${file}`, "utf8").split(/\r?\n/);
  const isClaim = (line: string): boolean => /^\W*(copyright\b|©)/i.test(line);
  const claims = lines.filter(isClaim).map((line) => line.trim());
  const terms = lines
    .filter((line) => !isClaim(line))
    .join(" ")
    .replace(/\s+/g, " ")
    .replace(/^\W*\(?The MIT License\b( \(MIT\))?\)?|^\W*MIT License|^\W*ISC License/i, "")
    .trim();
  return { copyright: claims, terms: `${declared}: ${terms}` };
}
