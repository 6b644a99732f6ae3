import { element } from "../dom/element";
import type { Palette } from "./colours/palettes";
import type { Scaling } from "./colours/range";
import type { HeadRef, Pool, RecordingEntry } from "./data/contract";
import type { Loader } from "./data/loader";
import type { Site } from "./data/site";
import type { Pointed } from "./parts/card";
import { HeadPanel } from "./parts/head-panel";
import { mapHelp } from "./parts/help";
import { Layout } from "./parts/layout";
import { Legend } from "./parts/legend";
import { Readout } from "./parts/readout";
import { SearchBox, type SearchEvents } from "./parts/search-box";
import { Stage, type StageEvents } from "./parts/stage";
import { TextPanel } from "./parts/text-panel";
import { TopBar } from "./parts/top-bar";

/** What people can do on the page. */
export interface Actions extends Omit<StageEvents, "tapped" | "close">, SearchEvents {
  readonly pool: (pool: Pool) => void;
  readonly scaling: (scaling: Scaling) => void;
  readonly palette: (palette: Palette) => void;
  readonly theme: () => void;
  readonly save: (format: "png" | "svg") => void;
  readonly head: (ref: HeadRef, beside: boolean) => void;
  readonly closeMap: (index: number) => void;
  /** Heads are to be sorted by something else. */
  readonly sorted: () => void;
  /** A row of the map was chosen. */
  readonly row: (at: Pointed) => void;
  /** A token of the text was chosen. */
  readonly token: (token: number) => void;
  readonly key: (key: number) => void;
  readonly letGo: () => void;
}

/** All parts of the page, put together. */
export class Shell {
  readonly stage: Stage;
  readonly heads: HeadPanel;
  readonly text: TextPanel;
  readonly search: SearchBox;
  readonly bar: TopBar;
  readonly layout: Layout;
  readonly legend = new Legend();
  readonly readout = new Readout();
  readonly help = mapHelp();

  constructor(
    root: HTMLElement,
    site: Site,
    recordings: readonly RecordingEntry[],
    loader: Loader,
    alert: HTMLElement,
    actions: Actions,
  ) {
    const { info } = site;
    this.stage = new Stage(info, loader, {
      ...actions,
      tapped: actions.row,
      close: actions.closeMap,
    });
    this.heads = new HeadPanel(info, {
      choose: (ref, beside) => {
        actions.head(ref, beside);
        this.layout.uncover();
      },
      thumbs: (call) => site.thumbs(call),
      sorted: actions.sorted,
    });
    this.text = new TextPanel({
      pick: actions.token,
      goToKey: actions.key,
      letGo: actions.letGo,
    });
    this.search = new SearchBox(actions);
    this.bar = new TopBar(info, recordings, this.search, {
      ...actions,
      recording: (digest) => location.assign(`#recording=${digest}`),
      exporting: actions.save,
      help: () => this.help.toggle(),
      panel: (side) => this.layout.toggle(side),
    });
    const foot = element("footer", { class: "foot" });
    foot.append(this.readout.element, this.legend.element);
    this.layout = new Layout(
      this.heads.element,
      element("div", { class: "middle" }, this.stage.element, foot),
      this.text.element,
      (side, open) => this.bar.showPanel(side, open),
    );
    root.replaceChildren(this.bar.element, alert, this.layout.element, this.help.element);
    document.title = `${info.title || info.name} · Regard`;
  }
}
