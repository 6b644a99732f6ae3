import { element } from "../dom/element";
import { STEPS } from "../look/tint";
import type { Chunk } from "./chunks";

/** A strip beside a long text that shows where in it the lit tokens are; a click goes there. */
export class Minimap {
  readonly element = element("canvas", { class: "minimap", "aria-hidden": "true" });
  #tints: Int8Array = new Int8Array();
  #chosen: number | null = null;
  #frame = 0;

  constructor(
    private readonly scroller: HTMLElement,
    private readonly chunks: readonly Chunk[],
  ) {
    scroller.addEventListener("scroll", () => this.draw(), { passive: true });
    new ResizeObserver(() => this.draw()).observe(scroller);
    // It takes room from a long text at once, lest all of it be laid out twice.
    this.element.classList.toggle("needed", chunks.length > 4);
    this.element.addEventListener("pointerdown", (event) => {
      this.element.setPointerCapture(event.pointerId);
      this.#goTo(event);
    });
    this.element.addEventListener("pointermove", (event) => {
      if (this.element.hasPointerCapture(event.pointerId)) this.#goTo(event);
    });
  }

  show(tints: Int8Array, chosen: number | null): void {
    this.#tints = tints;
    this.#chosen = chosen;
    this.draw();
  }

  /** Draw before the next frame, however often it is asked for. */
  draw(): void {
    cancelAnimationFrame(this.#frame);
    this.#frame = requestAnimationFrame(() => this.#paint());
  }

  #goTo(event: PointerEvent): void {
    const box = this.element.getBoundingClientRect();
    const share = (event.clientY - box.top) / box.height;
    this.scroller.scrollTop = share * this.scroller.scrollHeight - this.scroller.clientHeight / 2;
  }

  #paint(): void {
    const { clientHeight, scrollHeight, scrollTop } = this.scroller;
    const needed = scrollHeight > 1.3 * clientHeight;
    this.element.classList.toggle("needed", needed);
    if (!needed || clientHeight === 0) return;
    const pixels = devicePixelRatio;
    const width = Math.round(this.element.clientWidth * pixels);
    const height = Math.round(this.element.clientHeight * pixels);
    if (this.element.height !== height) this.element.height = height;
    this.element.width = width;
    const pen = this.element.getContext("2d");
    if (!pen) return;
    const style = getComputedStyle(this.element);
    pen.fillStyle = style.getPropertyValue("outline-color");
    pen.fillRect(
      0,
      (scrollTop / scrollHeight) * height,
      width,
      (clientHeight / scrollHeight) * height,
    );
    const places = this.#places(scrollHeight);
    const thick = Math.max(2 * pixels, height / 400);
    for (let token = 0; token < this.#tints.length; token++) {
      const tint = this.#tints[token] as number;
      if (tint === 0) continue;
      pen.fillStyle = style.getPropertyValue(tint < 0 ? "column-rule-color" : "color");
      pen.globalAlpha = 0.15 + (0.85 * Math.abs(tint)) / STEPS;
      const top = (places[token] as number) * height - thick / 2;
      pen.fillRect(4 * pixels, top, width - 8 * pixels, thick);
    }
    if (this.#chosen !== null) {
      pen.globalAlpha = 1;
      pen.fillStyle = style.getPropertyValue("caret-color");
      pen.fillRect(0, (places[this.#chosen] as number) * height - thick / 2, width, thick);
    }
  }

  /** About how far down the text each token stands: only chunks have a place before they are seen. */
  #places(scrollHeight: number): Float32Array {
    const places = new Float32Array(this.#tints.length);
    for (const { element: box, first, length } of this.chunks) {
      const top = box.offsetTop / scrollHeight;
      const each = box.offsetHeight / scrollHeight / length;
      for (let index = 0; index < length; index++)
        places[first + index] = top + (index + 0.5) * each;
    }
    return places;
  }
}
