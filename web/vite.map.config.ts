import { copyFileSync, readFileSync, writeFileSync } from "node:fs";
import { defineConfig } from "vite";
import { notices } from "./notices";
import { withoutEval } from "./without-eval";

// The map: one script with HiGlass in it, one style sheet, and the page that loads both.
export default defineConfig({
  define: { "process.env.NODE_ENV": '"production"', global: "globalThis" },
  plugins: [
    withoutEval(),
    {
      name: "map-page",
      closeBundle: () => {
        copyFileSync("src/map/map.html", "dist/map.html");
        // Put first only now: whatever makes the script small would leave it out.
        writeFileSync("dist/map.js", `${notices()}\n${readFileSync("dist/map.js", "utf8")}`);
      },
    },
  ],
  build: {
    target: "es2022",
    cssTarget: ["chrome123", "firefox121", "safari17.5"],
    cssMinify: true,
    minify: true,
    sourcemap: false,
    emptyOutDir: false,
    chunkSizeWarningLimit: 4000,
    lib: {
      entry: "src/map/main.ts",
      formats: ["iife"],
      name: "regardMapScript",
      fileName: () => "map.js",
      cssFileName: "map",
    },
  },
});
