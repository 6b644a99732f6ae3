import { readFileSync, writeFileSync } from "node:fs";
import { defineConfig } from "vite";
import { notices } from "./notices";
import { withoutEval } from "./without-eval";

// HiGlass, which is large: a script of its own, so that the map need not wait for it.
export default defineConfig({
  define: { "process.env.NODE_ENV": '"production"', global: "globalThis" },
  plugins: [
    withoutEval(),
    {
      name: "engine-notices",
      closeBundle: () => {
        // Put first only now: whatever makes the script small would leave it out.
        writeFileSync("dist/engine.js", `${notices()}\n${readFileSync("dist/engine.js", "utf8")}`);
      },
    },
  ],
  build: {
    target: "es2022",
    minify: true,
    sourcemap: false,
    emptyOutDir: false,
    chunkSizeWarningLimit: 4000,
    lib: {
      entry: "src/map/engine/engine.ts",
      formats: ["iife"],
      name: "regardEngine",
      fileName: () => "engine.js",
    },
  },
});
