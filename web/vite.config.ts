import { defineConfig } from "vite";

const ENTRIES: Readonly<Record<string, string>> = {
  page: "src/main.ts",
  map: "src/map/main.ts",
  atlas: "src/atlas/main.ts",
  attribution: "src/attribution/main.ts",
};

// `vite build --mode NAME`: one script and one style sheet. The map loads its engine by itself.
export default defineConfig(({ mode }) => ({
  build: {
    target: "es2022",
    cssTarget: ["chrome123", "firefox121", "safari17.5"],
    cssMinify: true,
    minify: true,
    sourcemap: false,
    emptyOutDir: mode === "page",
    lib: {
      entry: ENTRIES[mode] ?? "",
      formats: ["iife" as const],
      name: `regard_${mode}`,
      fileName: () => `${mode}.js`,
      cssFileName: mode,
    },
  },
}));
