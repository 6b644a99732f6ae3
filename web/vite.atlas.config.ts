import { defineConfig } from "vite";

// One script and one style sheet, which Python writes into the report of an atlas.
export default defineConfig({
  build: {
    target: "es2022",
    cssTarget: ["chrome123", "firefox121", "safari17.5"],
    cssMinify: true,
    minify: true,
    sourcemap: false,
    emptyOutDir: false,
    lib: {
      entry: "src/atlas/main.ts",
      formats: ["iife"],
      name: "regardAtlas",
      fileName: () => "atlas.js",
      cssFileName: "atlas",
    },
  },
});
