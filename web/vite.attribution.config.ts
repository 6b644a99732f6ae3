import { defineConfig } from "vite";

// One script and one style sheet, which Python writes into the page of an attribution.
export default defineConfig({
  build: {
    target: "es2022",
    cssTarget: ["chrome123", "firefox121", "safari17.5"],
    cssMinify: true,
    minify: true,
    sourcemap: false,
    emptyOutDir: false,
    lib: {
      entry: "src/attribution/main.ts",
      formats: ["iife"],
      name: "regardAttribution",
      fileName: () => "attribution.js",
      cssFileName: "attribution",
    },
  },
});
