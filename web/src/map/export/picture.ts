import { type ColourScale, stopsOf } from "../colours/palettes";
import { legendTicks, shareOf, type ValueRange } from "../colours/range";
import type { HeadView } from "../engine/head-view";
import { SvgPen } from "../engine/pen";
import { tickName } from "../parts/legend";

/** A map of the picture: its title, its view, where its card stands, and how much of it is seen. */
export interface Pictured {
  readonly title: string;
  readonly view: HeadView;
  readonly left: number;
  readonly top: number;
  readonly width: number;
  readonly height: number;
  /** The chosen row, from the top of the map, and its height. */
  readonly row: readonly [number, number] | null;
}

export interface PictureLook {
  readonly title: string;
  readonly about: string;
  readonly palette: ColourScale;
  readonly dark: boolean;
  readonly range: ValueRange;
  readonly legend: string;
  readonly ink: string;
  readonly muted: string;
  readonly paper: string;
  readonly forbidden: string;
  readonly stroke: string;
}

const SVG = "http://www.w3.org/2000/svg";
const MARGIN = 20;
const HEADING = 52;
const FOOT = 62;
/** Between maps. */
const GAP = 16;
/** A label of an axis may stand out so far beyond the map. */
const BEYOND = 14;
/** Above a map, for its title. */
const TITLE = 24;
/** The legend and its words have room. */
const LEAST = 460;

/** What is seen, as one SVG that needs nothing but itself. */
export function pictureOf(maps: readonly Pictured[], look: PictureLook): SVGSVGElement {
  const columns = placesOf(maps.map(({ left, width }) => [left, width]));
  const rows = placesOf(maps.map(({ top, height }) => [top, TITLE + height]));
  const width = Math.max(LEAST, columns.end + 2 * MARGIN);
  const height = rows.end + HEADING + FOOT;
  const svg = make("svg", { width, height, viewBox: `0 0 ${width} ${height}` }) as SVGSVGElement;
  svg.append(make("rect", { width, height, fill: look.paper }));
  const words = new SvgPen();
  const small = { size: 12, colour: look.muted, align: "left" } as const;
  words.text(look.title, MARGIN, 22, { size: 16, colour: look.ink, align: "left", bold: true });
  words.text(look.about, MARGIN, 40, small);
  svg.append(words.group);
  for (const [index, map] of maps.entries()) {
    const group = make("g", {
      transform: `translate(${columns.at(map.left) + MARGIN},${rows.at(map.top) + HEADING})`,
    });
    group.append(...partsOf(map, look, `map-${index}`));
    svg.append(group);
  }
  svg.append(legendOf(look, height));
  return svg;
}

/** Where columns or rows of the picture begin: one after the other, each as large as it is seen. */
function placesOf(maps: readonly (readonly [number, number])[]): {
  readonly at: (start: number) => number;
  readonly end: number;
} {
  const starts = [...new Set(maps.map(([start]) => start))].sort((one, other) => one - other);
  const places = new Map<number, number>();
  let end = -GAP;
  for (const start of starts) {
    places.set(start, end + GAP);
    end += GAP + Math.max(...maps.flatMap(([each, size]) => (each === start ? [size] : [])));
  }
  return { at: (start) => places.get(start) ?? 0, end };
}

function partsOf(map: Pictured, look: PictureLook, id: string): SVGElement[] {
  const tracks = map.view.tracks();
  if (!tracks) return [];
  const { facts } = map.view.scene;
  const { heat } = tracks;
  const title = new SvgPen();
  title.text(map.title, 4, 10, { size: 14, colour: look.ink, align: "left", bold: true });
  const body = make("g", { transform: `translate(0,${TITLE})` });
  const [x, y] = heat.position;
  const [width, height] = [map.width - x, map.height - y];
  const clipped = clip(`${id}-map`, x, y, width, height);
  const inner = make("g", { transform: `translate(${x},${y})` });
  const [left, top] = [heat._xScale(0), heat._yScale(0)];
  inner.append(
    make("rect", {
      x: left,
      y: top,
      width: heat._xScale(facts.keys) - left,
      height: heat._yScale(facts.queries) - top,
      fill: look.forbidden,
    }),
  );
  for (const picture of heat.pictures()) {
    inner.append(
      make("image", {
        x: picture.x,
        y: picture.y,
        width: picture.width,
        height: picture.height,
        href: picture.canvas.toDataURL(),
        preserveAspectRatio: "none",
        style: "image-rendering: pixelated",
      }),
    );
  }
  if (map.row) {
    const [start, thick] = map.row;
    inner.append(
      make("rect", { x: 0, y: start, width, height: thick, fill: "none", stroke: look.stroke }),
    );
  }
  clipped.group.append(inner);
  body.append(...clipped.parts);
  for (const [index, track] of [...tracks.axes, ...tracks.lines].entries()) {
    if (!track) continue;
    const [trackX, trackY] = track.position;
    const [wide, high] = track.dimensions;
    const beyond = index < tracks.axes.length ? BEYOND : 0;
    const seenX = Math.min(wide, map.width - trackX + beyond);
    const seenY = Math.min(high, map.height - trackY + beyond);
    const { parts, group } = clip(`${id}-${index}`, trackX, trackY, seenX, seenY);
    const moved = make("g", { transform: `translate(${trackX},${trackY})` });
    moved.append(track.exported());
    group.append(moved);
    body.append(...parts);
  }
  return [title.group, body];
}

function clip(id: string, x: number, y: number, width: number, height: number) {
  const path = make("clipPath", { id });
  path.append(make("rect", { x, y, width, height }));
  const group = make("g", { "clip-path": `url(#${id})` });
  return { parts: [path, group], group };
}

function legendOf(look: PictureLook, height: number): SVGElement {
  const pen = new SvgPen();
  const [x, y, width] = [MARGIN + 4, height - 42, 240];
  const stops = stopsOf(look.palette, look.dark);
  const gradient = make("linearGradient", { id: "legend" });
  for (const [index, colour] of stops.entries()) {
    gradient.append(make("stop", { offset: index / (stops.length - 1), "stop-color": colour }));
  }
  const bar = make("rect", { x, y, width, height: 10, fill: "url(#legend)", stroke: look.muted });
  bar.setAttribute("stroke-width", "0.5");
  for (const tick of legendTicks(look.range)) {
    const place = x + width * shareOf(look.range, tick);
    pen.text(tickName(tick), place, y + 20, { size: 11, colour: look.muted, align: "center" });
  }
  pen.text(look.legend, x + width + 20, y + 5, { size: 11, colour: look.muted, align: "left" });
  const group = make("g", {});
  group.append(gradient, bar, pen.group);
  return group;
}

function make(name: string, attributes: Readonly<Record<string, string | number>>): SVGElement {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, String(value));
  return made;
}
