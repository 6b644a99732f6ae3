import { axisColours } from "../colours/axis-colours";
import { rangeIn, scaleIn } from "../colours/colormaps";
import { paperOf } from "../colours/palettes";
import type { Info } from "../data/contract";
import type { Look } from "../look/look";
import type { Stage } from "../parts/stage";
import { type Pictured, pictureOf } from "./picture";
import { savePicture } from "./save";

/** Where nobody may look, as in style/base.css. */
const FORBIDDEN = { light: "#f1f2ef", dark: "#1c2027" } as const;

/** Save what the stage shows as a picture. */
export async function saveView(
  stage: Stage,
  info: Info,
  look: Look,
  dark: boolean,
  format: "png" | "svg",
): Promise<void> {
  const { query } = look;
  const tokens = stage.tokensPerCell;
  const colours = axisColours(dark);
  const picture = pictureOf(picturedOf(stage, query), {
    title: info.title || info.name,
    about: `${info.about.model} · rows look, columns are looked at`,
    palette: scaleIn(look),
    dark,
    range: rangeIn(look, info, tokens),
    legend: legendWords(look, info, tokens),
    ink: colours.ink,
    muted: colours.muted,
    paper: paperOf(dark),
    forbidden: dark ? FORBIDDEN.dark : FORBIDDEN.light,
    stroke: colours.stroke,
  });
  const heads = stage.cards.map((card) => card.view.scene.facts.name);
  await savePicture(picture, format, [info.name, ...heads].join("-").replaceAll(" ", "-"));
}

/** "weight" or "effect on …", and of how many pairs a cell is the mean or the largest. */
export function legendWords({ pool }: Look, { effects }: Info, tokens: number): string {
  if (pool !== "effect") return tokens === 1 ? "weight" : `${pool} of ${tokens} × ${tokens}`;
  const words = `effect on ${effects?.target ?? "the target"}`;
  return tokens === 1 ? words : `${words}, strongest of ${tokens} × ${tokens}`;
}

function picturedOf(stage: Stage, query: number | null): Pictured[] {
  const { camera } = stage.cameraController;
  return stage.cards.map((card) => {
    const { left, top } = card.element.getBoundingClientRect();
    const { facts } = card.view.scene;
    const [width, height] = card.sizeUpTo(facts.keys, facts.queries);
    const about = { title: facts.title, view: card.view, left, top, width, height };
    if (!camera || query === null) return { ...about, row: null };
    const start = (query - camera.y) * camera.scale + card.box.height / 2;
    return { ...about, row: [start, Math.max(2, camera.scale)] };
  });
}
