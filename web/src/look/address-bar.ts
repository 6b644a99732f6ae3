/** The part of the address after "#", where the page has an address of its own. */
export class AddressBar {
  #waiting = 0;
  #written = "";
  /** What the address is known to say: anything else, the reader has just put there. */
  #known = this.read();

  read(): string {
    try {
      return location.hash;
    } catch {
      return "";
    }
  }

  /** Write soon; browsers refuse pages that write too often. */
  write(words: string): void {
    if (words === this.#written) return;
    this.#written = words;
    clearTimeout(this.#waiting);
    this.#waiting = window.setTimeout(() => {
      // `listen` hears of it next: on a busy computer, after this.
      if (this.read() !== this.#known) return;
      try {
        history.replaceState(null, "", `#${words}`);
        this.#known = this.read();
      } catch {
        // In the frame of a notebook there is no address to write to.
      }
    }, 150);
  }

  listen(changed: (hash: string) => void): void {
    addEventListener("hashchange", () => {
      this.#known = this.read();
      if (this.read().replace(/^#/, "") !== this.#written) changed(this.read());
    });
  }
}
