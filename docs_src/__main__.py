"""Run the code of the documentation, and write down what it prints and draws.

python -m docs_src              all of it
python -m docs_src concept      that of one page
"""

import argparse
import time

from docs_src.running import ROOT, sources


def main() -> None:
    found = {f"{source.room}/{source.name}": source for source in sources()}
    names = {name.split("/")[-1] for name in found}
    parser = argparse.ArgumentParser(
        prog="python -m docs_src", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("pages", nargs="*", metavar="PAGE", help="all of them by default")
    wanted = [page.replace("_", "-") for page in parser.parse_args().pages]
    for page in wanted:
        if page not in found and page not in names:
            parser.error(f"there is no code for {page!r}, only for {', '.join(sorted(found))}")
    for name, source in found.items():
        if not wanted or name in wanted or name.split("/")[-1] in wanted:
            begin = time.perf_counter()
            source.write()
            shown = source.kept_output.relative_to(ROOT)
            print(f"{name}: {shown}, {len(source.kept_pictures)} pictures", end=", ")
            print(f"{time.perf_counter() - begin:.1f} s")


if __name__ == "__main__":
    main()
