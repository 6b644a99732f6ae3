import { own } from "../../dom/own";

const STEPS: Readonly<Record<string, number>> = {
  ArrowLeft: -1,
  ArrowUp: -1,
  ArrowRight: 1,
  ArrowDown: 1,
};

/** Let arrow keys walk along parts of which the Tab key reaches one. */
export function roving(parts: readonly HTMLElement[], walked: (number: number) => void): void {
  for (const [number, part] of parts.entries()) {
    part.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const last = parts.length - 1;
      const step = own(STEPS, event.key);
      const next = own({ Home: 0, End: last }, event.key) ?? (step ? number + step : null);
      if (next === null || next < 0 || next > last) return;
      event.preventDefault();
      walked(next);
      parts[next]?.focus({ preventScroll: true });
    });
  }
}

/** Let the Tab key reach one part only. */
export function reachable(parts: readonly HTMLElement[], chosen: number): void {
  for (const [number, part] of parts.entries()) part.tabIndex = number === chosen ? 0 : -1;
}
