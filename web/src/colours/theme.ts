export type Theme = "auto" | "light" | "dark";

const NEXT: Readonly<Record<Theme, Theme>> = { auto: "light", light: "dark", dark: "auto" };
const STORED = "regard-theme";

/** Light or dark: as the system says, or as chosen. */
export class ThemeChoice {
  readonly #system = matchMedia("(prefers-color-scheme: dark)");
  #choice: Theme = stored();

  constructor(private readonly changed: () => void) {
    document.documentElement.dataset.theme = this.#choice;
    this.#system.addEventListener("change", () => changed());
  }

  get theme(): Theme {
    return this.#choice;
  }

  get dark(): boolean {
    return this.#choice === "auto" ? this.#system.matches : this.#choice === "dark";
  }

  next(): void {
    this.#choice = NEXT[this.#choice];
    document.documentElement.dataset.theme = this.#choice;
    try {
      localStorage.setItem(STORED, this.#choice);
    } catch {
      // In the frame of a notebook nothing can be stored; the choice then lasts as long as the page.
    }
    this.changed();
  }
}

function stored(): Theme {
  try {
    const theme = localStorage.getItem(STORED);
    if (theme === "light" || theme === "dark") return theme;
  } catch {
    // As above.
  }
  return "auto";
}
