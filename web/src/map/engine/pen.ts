/** How a text is set. */
export interface Setting {
  readonly size: number;
  readonly colour: string;
  readonly align: "left" | "center" | "right";
  readonly bold?: boolean;
  /** Turned about its place, in degrees, clockwise. */
  readonly turn?: number;
}

/** What axes draw with: on a canvas, or into an SVG. */
export interface Pen {
  text(words: string, x: number, y: number, setting: Setting): void;
  rect(x: number, y: number, width: number, height: number, colour: string): void;
  /** A filled shape, given as x and y in turn. */
  shape(points: readonly number[], colour: string): void;
  /** How wide a text would be. */
  measure(words: string, size: number, bold: boolean): number;
}

export const FONT = "system-ui, sans-serif";

const measuring = document.createElement("canvas").getContext("2d");
const widths = new Map<string, number>();

function measured(words: string, size: number, bold: boolean): number {
  const key = `${bold ? "b" : ""}${size} ${words}`;
  const known = widths.get(key);
  if (known !== undefined) return known;
  if (!measuring) return words.length * size * 0.6;
  if (widths.size > 20_000) widths.clear();
  measuring.font = fontOf(size, bold);
  const width = measuring.measureText(words).width;
  widths.set(key, width);
  return width;
}

function fontOf(size: number, bold: boolean): string {
  return `${bold ? "600 " : ""}${size}px ${FONT}`;
}

export class CanvasPen implements Pen {
  constructor(private readonly brush: CanvasRenderingContext2D) {
    brush.textBaseline = "middle";
  }

  text(words: string, x: number, y: number, setting: Setting): void {
    const { brush } = this;
    brush.font = fontOf(setting.size, setting.bold ?? false);
    brush.fillStyle = setting.colour;
    brush.textAlign = setting.align;
    // Whatever letters a token has, it starts where its place is.
    brush.direction = "ltr";
    brush.save();
    brush.translate(x, y);
    if (setting.turn) brush.rotate((setting.turn * Math.PI) / 180);
    brush.fillText(words, 0, 0);
    brush.restore();
  }

  rect(x: number, y: number, width: number, height: number, colour: string): void {
    this.brush.fillStyle = colour;
    this.brush.fillRect(x, y, width, height);
  }

  shape(points: readonly number[], colour: string): void {
    this.brush.fillStyle = colour;
    this.brush.beginPath();
    for (let at = 0; at < points.length; at += 2) {
      this.brush.lineTo(points[at] as number, points[at + 1] as number);
    }
    this.brush.fill();
  }

  measure(words: string, size: number, bold: boolean): number {
    return measured(words, size, bold);
  }
}

const SVG = "http://www.w3.org/2000/svg";
const ANCHORS = { left: "start", center: "middle", right: "end" } as const;

export class SvgPen implements Pen {
  readonly group = document.createElementNS(SVG, "g");

  text(words: string, x: number, y: number, setting: Setting): void {
    const made = this.#add("text", {
      transform: `translate(${short(x)},${short(y)})${setting.turn ? ` rotate(${setting.turn})` : ""}`,
      "font-family": FONT,
      "font-size": setting.size,
      fill: setting.colour,
      "text-anchor": ANCHORS[setting.align],
      "dominant-baseline": "central",
    });
    if (setting.bold) made.setAttribute("font-weight", "600");
    made.textContent = words;
  }

  rect(x: number, y: number, width: number, height: number, colour: string): void {
    this.#add("rect", {
      x: short(x),
      y: short(y),
      width: short(width),
      height: short(height),
      fill: colour,
    });
  }

  shape(points: readonly number[], colour: string): void {
    this.#add("polygon", { points: points.map(short).join(" "), fill: colour });
  }

  measure(words: string, size: number, bold: boolean): number {
    return measured(words, size, bold);
  }

  #add(name: string, attributes: Readonly<Record<string, string | number>>): SVGElement {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, String(value));
    this.group.append(made);
    return made;
  }
}

function short(value: number): number {
  return Math.round(100 * value) / 100;
}
