import { ThemeChoice } from "../colours/theme";
import { AddressBar } from "../look/address-bar";
import { axisColours } from "./colours/axis-colours";
import { mapColormap, rangeIn, scaleIn, thumbColormap } from "./colours/colormaps";
import { Attempts } from "./data/attempts";
import { ChosenRow } from "./data/chosen-row";
import type { CallLooks, HeadRef, RecordingEntry } from "./data/contract";
import { firstHead, type HeadFacts, knownFacts, nextPool, sameHead } from "./data/heads";
import { getFrom, Loader } from "./data/loader";
import type { Match } from "./data/search";
import type { Site } from "./data/site";
import { Texts } from "./data/texts";
import { axesOf } from "./engine/axes";
import type { AxisText, Colormap } from "./engine/scene";
import { legendWords, saveView } from "./export/save-view";
import { hookForTests } from "./hook";
import type { Domain } from "./look/camera";
import { Jumps } from "./look/jumps";
import { listenToKeys } from "./look/keys";
import { fromAddress, type Look, MOST_MAPS, recordingIn, toAddress, usualLook } from "./look/look";
import { Searching } from "./look/searching";
import { nextHead, nextLayer } from "./look/steps";
import { Alert } from "./parts/alert";
import type { Pointed } from "./parts/card";
import { Shell } from "./shell";

/** The engine is waited for, but not for ever. */
const PATIENCE = 2500;

/** The map of one recording: holds what is looked at, and shows it in all parts. */
export class MapApp {
  readonly #info;
  readonly #usual: Look;
  #look: Look;
  #colormap: Colormap;
  #pointed: Pointed | null = null;
  #begun = false;
  readonly #texts: Texts;
  readonly #searching = new Searching();
  readonly #address = new AddressBar();
  readonly #chosen: ChosenRow;
  /** The token and direction by whose looks heads are sorted; "" if they are not. */
  #sortedBy = "";
  readonly #theme: ThemeChoice;
  readonly #attempts: Attempts;
  readonly #shell: Shell;
  readonly #jumps: Jumps;

  constructor(
    root: HTMLElement,
    private readonly site: Site,
    recordings: readonly RecordingEntry[],
  ) {
    const info = site.info;
    this.#info = info;
    this.#usual = usualLook(info);
    this.#look = { ...this.#usual, ...fromAddress(this.#address.read(), info) };
    this.#chosen = new ChosenRow(site);
    this.#texts = new Texts(site);
    this.#theme = new ThemeChoice(() => this.#repaint());
    this.#colormap = mapColormap(this.#look, this.#info, this.#theme.dark);
    const loader = new Loader(getFrom(site.root), (error) => {
      alert.show("tiles", error?.message ?? null);
    });
    const alert = new Alert(() => {
      loader.retry();
      this.#attempts.retry();
    });
    this.#attempts = new Attempts((name, words) => alert.show(name, words));
    this.#shell = new Shell(root, site, recordings, loader, alert.element, {
      moved: (domain) => this.#moved(domain),
      pointed: (at) => this.#point(at),
      complete: () => this.#complete(),
      opening: (open) => this.#attempts.start("engine", open),
      axes: (facts) => this.#axes(facts),
      pool: (pool) => this.#change({ pool }),
      scaling: (scaling) => this.#change({ scaling }),
      palette: (palette) => this.#change({ palette }),
      theme: () => this.#theme.next(),
      save: (format) => this.#attempts.start("picture", () => this.#save(format)),
      head: (ref, beside) => this.#chooseHead(ref, beside),
      sorted: () => this.#readLooks(),
      closeMap: (index) => this.#setHeads(this.#look.heads.filter((_, each) => each !== index)),
      row: (at) => this.#choose(Math.floor(at.query), true),
      token: (token) => {
        this.#choose(token, false);
        this.#jumps.toRow(token);
      },
      key: (key) => this.#jumps.toPair(key, this.#look.query),
      letGo: () => this.#choose(null, false),
      find: (words) => this.#showMatch(this.#searching.find(words, this.#look.query ?? 0)),
      step: (by) => this.#showMatch(this.#searching.step(by)),
    });
    this.#jumps = new Jumps(this.#shell.stage.cameraController);
    this.#start();
  }

  #start(): void {
    const { layout, bar, stage } = this.#shell;
    layout.start();
    bar.showTheme(this.#theme.theme);
    stage.cameraController.goTo(this.#look.domain, false);
    this.#show();
    setTimeout(() => this.#begin(), PATIENCE);
    this.#address.listen((hash) => {
      const digest = recordingIn(hash);
      if (digest && digest !== this.#info.digest) location.reload();
      else this.#restore(hash);
    });
    this.#listen();
    hookForTests(stage, this.#searching, this.#chosen, () => this.#look);
  }

  /** One can look around: now what that did not need, the text and the small maps. */
  #begin(): void {
    if (this.#begun) return;
    this.#begun = true;
    this.#showTexts();
    this.#shell.heads.start(thumbColormap(this.#look, this.#info, this.#theme.dark));
    if (this.#look.query !== null) this.#readRow();
  }

  #complete(): void {
    this.#begin();
    if (this.#pointed) this.#point(this.#pointed);
  }

  /** The head that the text and the keys are about. */
  get #first(): HeadRef {
    return this.#look.heads[0] ?? firstHead(this.#info);
  }

  get #facts(): HeadFacts {
    return knownFacts(this.#info, this.#first);
  }

  /** Show the texts of the head, as soon as they are here. */
  #showTexts(): void {
    const { call } = this.#facts;
    const [queries, keys] = [this.#texts.get(call.queryText), this.#texts.get(call.keyText)];
    if (!queries || !keys) {
      const load = () => this.#texts.load(call).then(() => this.#showTexts());
      if (this.#begun) this.#attempts.start("text", load);
      return;
    }
    this.#attempts.stop("text");
    this.#shell.text.setTexts(queries, keys);
    this.#searching.setText(queries.pieces);
    this.#showMarks();
    if (this.#look.query !== null) this.#shell.text.reveal(this.#look.query);
  }

  #axes(facts: HeadFacts): { keys: AxisText; queries: AxisText } {
    const { matches, here } = this.#searching;
    const { row } = this.#chosen;
    const searched = this.#facts.call.queryText;
    const marked = { query: this.#look.query, row, matches, here, searched };
    return axesOf(this.#info, facts, this.#texts.pieces, marked);
  }

  #change(change: Partial<Look>): void {
    const before = this.#look;
    this.#look = { ...before, ...change };
    const { palette, scaling, pool } = this.#look;
    const thumbs = palette !== before.palette || scaling !== before.scaling;
    if (thumbs || pool !== before.pool) this.#paintAnew(thumbs);
    this.#show();
  }

  #repaint(): void {
    this.#paintAnew(true);
    this.#shell.bar.showTheme(this.#theme.theme);
    this.#show();
  }

  #paintAnew(thumbs: boolean): void {
    const { dark } = this.#theme;
    this.#colormap = mapColormap(this.#look, this.#info, dark);
    if (thumbs && this.#begun) {
      this.#shell.heads.start(thumbColormap(this.#look, this.#info, dark));
    }
  }

  #show(): void {
    const { heads, pool, scaling, palette, query } = this.#look;
    const colours = axisColours(this.#theme.dark);
    this.#shell.stage.show({ heads, pool, colormap: this.#colormap, colours, query });
    this.#shell.heads.show(heads);
    this.#shell.bar.show(pool, scaling, palette);
    this.#showLegend();
    this.#address.write(toAddress(this.#look));
  }

  #showLegend(): void {
    const { stage, legend } = this.#shell;
    const range = rangeIn(this.#look, this.#info, stage.tokensPerCell);
    const words = legendWords(this.#look, this.#info, stage.tokensPerCell);
    legend.show(scaleIn(this.#look), this.#theme.dark, range, words);
  }

  #showMarks(): void {
    const { text, search, stage } = this.#shell;
    const { matches, here, at, more } = this.#searching;
    const { query } = this.#look;
    const { row } = this.#chosen;
    text.choose(query === null ? null : { query, row }, this.#facts.words);
    text.mark(matches, here);
    search.show(matches.length, at, more);
    stage.axesChanged();
  }

  #showMatch(here: Match | null): void {
    this.#showMarks();
    if (!here) return;
    this.#shell.text.reveal(here[0]);
    const { queryText, keyText } = this.#facts.call;
    this.#jumps.toMatch(here, queryText === keyText);
  }

  #moved(domain: Domain | null): void {
    this.#look = { ...this.#look, domain };
    const free = this.#look.query === null && this.#searching.here === null;
    if (domain && free) this.#shell.text.follow(Math.floor((domain.y[0] + domain.y[1]) / 2));
    this.#showLegend();
    this.#address.write(toAddress(this.#look));
  }

  #point(at: Pointed | null): void {
    const { readout, stage } = this.#shell;
    this.#pointed = at;
    if (!at) {
      readout.clear();
      return;
    }
    const { queryText, keyText } = this.#facts.call;
    const place = (text: number, where: number) => {
      return { position: Math.floor(where), pieces: this.#texts.pieces.get(text) ?? [] };
    };
    const [query, key] = [place(queryText, at.query), place(keyText, at.key)];
    readout.show(query, key, stage.readings(at), this.#look.pool);
  }

  #setHeads(heads: readonly HeadRef[]): void {
    if (!heads[0]) return;
    const other = !sameHead(heads[0], this.#first);
    this.#change({ heads });
    if (!other) return;
    this.#showTexts();
    this.#readRow();
  }

  /** Show a head instead of the first, or beside all that are shown. */
  #chooseHead(ref: HeadRef, beside: boolean): void {
    const { heads } = this.#look;
    const isOther = (head: HeadRef): boolean => !sameHead(head, ref);
    if (!beside) this.#setHeads([ref, ...heads.slice(1).filter(isOther)]);
    else if (heads.every(isOther)) this.#setHeads([...heads.slice(0, MOST_MAPS - 1), ref]);
  }

  #choose(query: number | null, revealing: boolean): void {
    this.#change({ query });
    this.#readRow(revealing);
  }

  /** Read where the chosen query looks, and scroll the text to it, unless one came from there. */
  #readRow(revealing = true): void {
    const { query } = this.#look;
    const show = (): void => {
      this.#showMarks();
      if (revealing && query !== null) this.#shell.text.reveal(query);
    };
    const head = this.#first;
    this.#attempts.start("row", async () => {
      // The keys that are listed then take room from the text.
      if (await this.#chosen.read(head, query)) show();
    });
    show();
    this.#readLooks();
  }

  /** Read the looks of the chosen token, or at it, if heads are to be sorted by them. */
  #readLooks(): void {
    const { heads } = this.#shell;
    const { query } = this.#look;
    const { direction } = heads;
    const { pieces } = this.#texts;
    const { queryText } = this.#facts.call;
    const sortedBy = direction && query !== null ? `${direction}/${queryText}/${query}` : "";
    if (sortedBy === this.#sortedBy) return;
    this.#sortedBy = sortedBy;
    if (!direction || query === null) {
      this.#attempts.stop("looks");
      if (direction) heads.showLooks(null);
      return;
    }
    const show = (calls: readonly CallLooks[] | null): void => {
      heads.showLooks({ piece: pieces.get(queryText)?.[query] ?? "", calls, pieces });
    };
    this.#attempts.start("looks", async () => {
      await this.#texts.load(...this.#info.calls);
      const found = await this.site.looks(direction, queryText, query);
      if (sortedBy === this.#sortedBy) show(found);
    });
    show(null);
  }

  #restore(hash: string): void {
    const look = { ...this.#usual, ...fromAddress(hash, this.#info) };
    this.#setHeads(look.heads);
    this.#change(look);
    this.#shell.stage.cameraController.goTo(look.domain, true);
    this.#readRow();
  }

  #save(format: "png" | "svg"): Promise<void> {
    return saveView(this.#shell.stage, this.#info, this.#look, this.#theme.dark, format);
  }

  #listen(): void {
    const { stage, search, bar, help } = this.#shell;
    const show = (next: HeadRef): void => this.#chooseHead(next, false);
    listenToKeys({
      zoom: (factor) => stage.cameraController.zoom(factor, [0, 0], true),
      pan: (x, y) => this.#jumps.step(x, y),
      whole: () => stage.cameraController.goTo(null, true),
      deepest: () => this.#jumps.deepest(this.#pointed, this.#facts.causal),
      head: (by) => show(nextHead(this.#info, this.#first, by)),
      layer: (by) => show(nextLayer(this.#info, this.#first, by)),
      pool: () => this.#change({ pool: nextPool(this.#info, this.#look.pool) }),
      scaling: () => this.#change({ scaling: this.#look.scaling === "log" ? "linear" : "log" }),
      theme: () => this.#theme.next(),
      search: () => search.focus(),
      exporting: () => bar.openExport(),
      letGo: () => this.#choose(null, false),
      help: () => help.toggle(),
    });
  }
}
