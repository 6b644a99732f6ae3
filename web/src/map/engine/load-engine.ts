import { element } from "../../dom/element";
import type { Mount } from "./higlass";

declare global {
  interface Window {
    /** What engine.js leaves behind. */
    regardEngine?: { readonly mount: Mount };
  }
}

// The page says what the engine is called: the name has a version in it.
const script = document.currentScript;
const address = (script instanceof HTMLElement && script.dataset.engine) || "engine.js";

let loading: Promise<Mount> | null = null;

/** Fetch the engine, after all else, so that it is here when it is to run. */
export function fetchEngine(): void {
  const attributes = { rel: "preload", as: "script", href: address, fetchpriority: "low" };
  document.head.append(element("link", attributes));
}

/** Run the engine, which keeps the page busy for a while. */
export function loadEngine(): Promise<Mount> {
  loading ??= run();
  loading.catch(() => {
    loading = null;
  });
  return loading;
}

function run(): Promise<Mount> {
  return new Promise((resolve, reject) => {
    const made = element("script", { src: address });
    const settle = (): void => {
      made.remove();
      if (window.regardEngine) resolve(window.regardEngine.mount);
      else reject(new Error("A part of the map could not be loaded: engine.js. Try again."));
    };
    made.addEventListener("load", settle);
    made.addEventListener("error", settle);
    document.head.append(made);
  });
}
