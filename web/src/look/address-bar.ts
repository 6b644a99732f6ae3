/** The part of the address after "#", where the page has an address of its own. */
export class AddressBar {
  #waiting = 0;
  #written = "";

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
      try {
        history.replaceState(null, "", `#${words}`);
      } catch {
        // In the frame of a notebook there is no address to write to.
      }
    }, 150);
  }

  listen(changed: (hash: string) => void): void {
    addEventListener("hashchange", () => {
      if (this.read().replace(/^#/, "") !== this.#written) changed(this.read());
    });
  }
}
