import { defineConfig } from "vite";

// One script and one style sheet, which Python writes into the page.
export default defineConfig({
  build: {
    target: "es2022",
    cssTarget: ["chrome123", "firefox121", "safari17.5"],
    cssMinify: true,
    minify: true,
    sourcemap: false,
    emptyOutDir: true,
    lib: {
      entry: "src/main.ts",
      formats: ["iife"],
      name: "regardPage",
      fileName: () => "page.js",
      cssFileName: "page",
    },
  },
});
