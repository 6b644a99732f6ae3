import type { Theme } from "../../colours/theme";
import { drawn } from "../../dom/element";

const SHAPES = {
  heads: "M4 5h5v5H4zM13 5h7v5h-7zM4 13h5v6H4zM13 13h7v6h-7z",
  text: "M4 6h16M4 10.500h16M4 15h11M4 19h7",
  save: "M12 4v11M7.500 11l4.500 4.500 4.500-4.500M5 20h14",
  auto: "M12 3a9 9 0 1 0 0 18Z",
  light:
    "M12 7.500a4.500 4.500 0 1 0 .01 0M12 2v2.500M12 19.500v2.500M2 12h2.500M19.500 12h2.500M4.900 4.900l1.800 1.800M17.300 17.300l1.800 1.800M4.900 19.100l1.800-1.800M17.300 6.700l1.800-1.800",
  dark: "M20 14.500A8.500 8.500 0 0 1 9.500 4a8.500 8.500 0 1 0 10.500 10.500Z",
} as const;

export type Icon = keyof typeof SHAPES;

export function icon(name: Icon): SVGSVGElement {
  const shape = drawn("path", { d: SHAPES[name] });
  if (name === "auto" || name === "dark") shape.classList.add("filled");
  const ring = name === "auto" ? [drawn("circle", { cx: 12, cy: 12, r: 9 })] : [];
  return drawn("svg", { viewBox: "0 0 24 24", "aria-hidden": "true" }, ...ring, shape);
}

export const THEME_NAMES: Readonly<Record<Theme, string>> = {
  auto: "Theme: as the system",
  light: "Theme: light",
  dark: "Theme: dark",
};
