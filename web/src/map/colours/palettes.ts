/** The colour scales, from weight 0 to weight 1, told apart without telling red from green. */
export const PALETTES = ["ember", "ink", "viridis", "cividis", "grey"] as const;
export type Palette = (typeof PALETTES)[number];

/** Weight 0 looks like the paper that the map lies on. */
const PAPER = { light: "#ffffff", dark: "#14161c" } as const;

/** From little to much, on dark paper; on light paper the other way round. */
const STOPS: Readonly<Record<Palette, readonly string[]>> = {
  ember: ["#251255", "#5f187f", "#982d80", "#d3436e", "#f8765c", "#febb81", "#fcfdbf"],
  ink: ["#1d2f52", "#20457f", "#2a66bd", "#5593e6", "#9cc4f8", "#e6f1ff"],
  viridis: ["#3b2a6b", "#3e4c8a", "#31688e", "#21918c", "#35b779", "#90d743", "#fde725"],
  cividis: ["#12306b", "#31446b", "#575d6d", "#7c7b78", "#a59c74", "#d3c164", "#ffea46"],
  grey: ["#2b2e36", "#565a63", "#868a92", "#b9bcc2", "#f2f3f5"],
};

const LIGHT_STOPS: Readonly<Record<Palette, readonly string[]>> = {
  ember: ["#fff3d6", "#fed8a0", "#fdae78", "#f8765c", "#d3436e", "#982d80", "#5f187f", "#221150"],
  ink: ["#e8f0fc", "#c3d9f7", "#8fb8ef", "#5590dd", "#2b65bd", "#173f86", "#0b1f4b"],
  viridis: ["#f6f3b0", "#b5de2b", "#6ece58", "#35b779", "#1f9e89", "#31688e", "#3e4989", "#440154"],
  cividis: ["#fbf0b8", "#e8d25c", "#bcae6f", "#948e77", "#706f72", "#51576c", "#2a3f6d", "#0a2250"],
  grey: ["#ececee", "#c9cacf", "#9a9ca4", "#6a6d76", "#3b3e47", "#111318"],
};

/** The colours of effects, as in src/regard/views/diverging.py, but 0 looks like the paper. */
const DIVERGING = {
  light: ["#b84e00", "#eb9a4c", "#f8d9b6", PAPER.light, "#c6dcf9", "#7aaef2", "#2a69c4"],
  dark: ["#ffb465", "#c4731d", "#663c14", PAPER.dark, "#1c3f74", "#3a78d2", "#9dc5ff"],
} as const;

/** A palette, or the one scale of signed numbers. */
export type ColourScale = Palette | "diverging";

export function paperOf(dark: boolean): string {
  return dark ? PAPER.dark : PAPER.light;
}

/** The colours of a scale; 0 is the paper, or the middle of signed numbers. */
export function stopsOf(palette: ColourScale, dark: boolean): readonly string[] {
  if (palette === "diverging") return dark ? DIVERGING.dark : DIVERGING.light;
  return [paperOf(dark), ...(dark ? STOPS : LIGHT_STOPS)[palette]];
}

export function gradientOf(palette: ColourScale, dark: boolean): string {
  return `linear-gradient(to right, ${stopsOf(palette, dark).join(", ")})`;
}

/** How many colours a table has. */
export const SHADES = 1024;

/** A scale as pixels, in the order in which canvases keep them. */
export function tableOf(palette: ColourScale, dark: boolean): Uint32Array {
  const stops = stopsOf(palette, dark).map(channels);
  const table = new Uint32Array(SHADES);
  for (let shade = 0; shade < SHADES; shade++) {
    const place = (shade / (SHADES - 1)) * (stops.length - 1);
    const from = Math.min(stops.length - 2, Math.floor(place));
    const [low, high] = [stops[from], stops[from + 1]];
    if (!low || !high) continue;
    const [red, green, blue] = low.map((start, channel) =>
      Math.round(start + ((high[channel] as number) - start) * (place - from)),
    ) as [number, number, number];
    table[shade] = ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
  }
  return table;
}

function channels(colour: string): [number, number, number] {
  const number = Number.parseInt(colour.slice(1), 16);
  return [number >> 16, (number >> 8) & 255, number & 255];
}
