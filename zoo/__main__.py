"""Examine all types of models and write down what was found."""

import argparse
import collections
from pathlib import Path

from zoo import page, pool, result, types
from zoo.sample import SAMPLE

CACHE = Path(__file__).parents[1] / ".zoo" / "results.jsonl"


def main() -> None:
    """Do what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m zoo", description=__doc__)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these types, anew")
    parser.add_argument("--again", nargs="+", metavar="CLASS", help="types of these classes, anew")
    parser.add_argument("--sample", action="store_true", help="the types that CI runs, anew")
    parser.add_argument("--anew", action="store_true", help="forget what is kept")
    parser.add_argument("--jobs", type=int, default=2, help="how many at once")
    parser.add_argument("--cache", type=Path, default=CACHE, help="where results are kept")
    chosen = parser.parse_args()
    chosen.cache.parent.mkdir(parents=True, exist_ok=True)
    if chosen.anew:
        chosen.cache.unlink(missing_ok=True)
    known = result.read(chosen.cache)
    names = types.names()
    if chosen.only:
        wanted = chosen.only
    elif chosen.sample:
        wanted = list(SAMPLE)
    elif chosen.again:
        wanted = [name for name in names if name in known and known[name].verdict in chosen.again]
    else:
        wanted = [name for name in names if name not in known]

    def told(found: result.Result) -> None:
        known[found.name] = found
        with chosen.cache.open("a", encoding="utf-8") as file:
            file.write(found.line() + "\n")
        said = "; ".join([*found.wrong, *found.reasons][:2])
        print(f"{found.name}: {found.verdict} ({found.seconds} s) {said}"[:240], flush=True)

    pool.examine_all(wanted, chosen.jobs, told)
    counts = collections.Counter(one.verdict for one in known.values())
    for verdict in result.CLASSES:
        print(f"{counts[verdict]:4} {verdict}")
    if known.keys() >= set(names):
        page.write({name: known[name] for name in names})
    if counts["WRONG"]:
        raise SystemExit("something differs and nothing says so")


if __name__ == "__main__":
    main()
