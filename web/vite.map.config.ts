import { defineConfig } from "vite";

// The map without its engine: one script and one style sheet.
export default defineConfig({
  build: {
    target: "es2022",
    cssTarget: ["chrome123", "firefox121", "safari17.5"],
    cssMinify: true,
    minify: true,
    sourcemap: false,
    emptyOutDir: false,
    lib: {
      entry: "src/map/main.ts",
      formats: ["iife"],
      name: "regardMapScript",
      fileName: () => "map.js",
      cssFileName: "map",
    },
  },
});
