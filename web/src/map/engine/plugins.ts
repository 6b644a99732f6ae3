import { axisTrack } from "./axis-track";
import { Fetcher } from "./fetcher";
import { heatTrack } from "./heat-track";
import type { Options } from "./higlass";
import { lineTrack } from "./line-track";

/** HiGlass makes tracks with `new`; whatever that returns is the track. */
function madeBy(make: (...given: never[]) => object): unknown {
  return function track(...given: never[]): object {
    return make(...given);
  };
}

function config(type: string, orientation: string): object {
  return { type, orientation, name: type, datatype: [], availableOptions: [], defaultOptions: {} };
}

export const plugins: Pick<Options, "pluginTracks" | "pluginDataFetchers"> = {
  pluginTracks: {
    "regard-heat": { track: madeBy(heatTrack), config: config("regard-heat", "2d") },
    "regard-axis-top": {
      track: madeBy(axisTrack),
      config: config("regard-axis-top", "1d-horizontal"),
    },
    "regard-axis-left": {
      track: madeBy(axisTrack),
      config: config("regard-axis-left", "1d-vertical"),
    },
    "regard-line-top": {
      track: madeBy(lineTrack),
      config: config("regard-line-top", "1d-horizontal"),
    },
    "regard-line-left": {
      track: madeBy(lineTrack),
      config: config("regard-line-left", "1d-vertical"),
    },
  },
  pluginDataFetchers: { regard: { dataFetcher: Fetcher, config: { type: "regard" } } },
};

/** HiGlass reads view configurations before it looks at its options. */
export function registerTracks(): void {
  Object.assign(window, { higlassTracksByType: plugins.pluginTracks });
}
