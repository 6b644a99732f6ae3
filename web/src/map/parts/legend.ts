import { element } from "../../dom/element";
import { type ColourScale, gradientOf } from "../colours/palettes";
import { legendTicks, shareOf, type ValueRange } from "../colours/range";

/** Which colour is which weight. */
export class Legend {
  readonly element = element("div", { class: "map-legend" });
  readonly #bar = element("div", { class: "legend-bar" });
  readonly #ticks = element("div", { class: "legend-ticks" });
  readonly #words = element("span", { class: "legend-words" });

  constructor() {
    this.element.append(this.#words, element("div", {}, this.#bar, this.#ticks));
  }

  show(palette: ColourScale, dark: boolean, range: ValueRange, words: string): void {
    this.#words.textContent = words;
    this.#bar.style.backgroundImage = gradientOf(palette, dark);
    this.#ticks.replaceChildren(
      ...legendTicks(range).map((tick) => {
        const made = element("span", {}, tickName(tick));
        made.style.left = `${100 * shareOf(range, tick)}%`;
        return made;
      }),
    );
  }
}

const RAISED = "⁰¹²³⁴⁵⁶⁷⁸⁹";

/** 1, 0.1, 0.01, 10⁻³ … */
export function tickName(value: number): string {
  if (value === 0) return "0";
  if (value < 0) return `−${tickName(-value)}`;
  if (value >= 0.0099) return String(Number(value.toPrecision(2)));
  const power = Math.floor(Math.log10(value) + 1e-9);
  const factor = value / 10 ** power;
  const raised = [...String(-power)].map((digit) => RAISED[Number(digit)]).join("");
  const rounded = Number(factor.toPrecision(2));
  return rounded === 1 ? `10⁻${raised}` : `${rounded}·10⁻${raised}`;
}
