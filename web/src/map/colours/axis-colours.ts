import type { AxisColours } from "../engine/scene";

/** The colours of style/colours.css, for what is drawn on canvases. */
const LIGHT: AxisColours = {
  ink: "#1b1e26",
  muted: "#5a6170",
  line: "#cfd3d8",
  tint: "#8db9f5",
  stroke: "#2465c2",
  match: "#fbdcb0",
  matchHere: "#f6b66a",
};

const DARK: AxisColours = {
  ink: "#eceef3",
  muted: "#a3aab8",
  line: "#3a4150",
  tint: "#2c5fae",
  stroke: "#7fb0f7",
  match: "#6b430f",
  matchHere: "#b06a14",
};

export function axisColours(dark: boolean): AxisColours {
  return dark ? DARK : LIGHT;
}
