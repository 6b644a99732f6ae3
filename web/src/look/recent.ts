/** Keeps the few values that were used last. */
export class Recent<Key, Value> {
  readonly #values = new Map<Key, Value>();

  constructor(private readonly room: number) {}

  get(key: Key): Value | undefined {
    const value = this.#values.get(key);
    if (value !== undefined) this.set(key, value);
    return value;
  }

  set(key: Key, value: Value): void {
    this.#values.delete(key);
    this.#values.set(key, value);
    for (const oldest of this.#values.keys()) {
      if (this.#values.size <= this.room) break;
      this.#values.delete(oldest);
    }
  }

  delete(key: Key): void {
    this.#values.delete(key);
  }
}
