/**
 * Note when something was there for the first time, for whoever measures it.
 *
 * `regard:first-picture`: the tiles in sight can be seen. `regard:ready`: the engine shows them.
 */
export function markFirst(name: "regard:first-picture" | "regard:ready"): void {
  if (performance.getEntriesByName(name).length === 0) performance.mark(name);
}
