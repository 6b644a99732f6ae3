"""Memory of five summaries as sequences grow: from a matrix written down, and from tiles.

    python -m benchmarks.memory [--json] [--figure docs/images/memory.svg]

float32, one head of 64, causal; each point in a process of its own. The matrix that is written down
is measured as far as it fits into 16 GB.
"""

from pathlib import Path

from benchmarks._measure import Figure, asked, in_child, report

LENGTHS = [2**power for power in range(10, 17)]
LARGEST_WRITTEN = 32_768
NAMES = {"written": "softmax(QKᵀ), then statistics", "child": "AttentionMatrix.summarize"}


def main() -> None:
    arguments = asked(__doc__)
    curves: dict[str, list[tuple[int, float]]] = {run: [] for run in NAMES}
    for length in LENGTHS:
        for run, curve in curves.items():
            if run == "written" and length > LARGEST_WRITTEN:
                continue
            _, gigabytes = in_child(f"from benchmarks.matrix import {run}; {run}({length}, 1)")
            curve.append((length, gigabytes * 1e3))
            figure = Figure(f"{NAMES[run]} at {length:,}: peak extra memory", gigabytes * 1e3, "MB")
            report(figure, as_json=arguments.json)
    if arguments.figure:
        draw(curves, arguments.figure)


def draw(curves: dict[str, list[tuple[int, float]]], path: Path) -> None:
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams.update({"font.size": 9, "svg.fonttype": "none", "svg.hashsalt": "regard"})
    from matplotlib import pyplot as plt

    figure, ax = plt.subplots(figsize=(5.2, 3.2), layout="constrained")
    colors = {"written": "#d1495b", "child": "#00798c"}
    for run, curve in curves.items():
        lengths, megabytes = zip(*curve, strict=True)
        ax.plot(lengths, megabytes, "o-", color=colors[run], markersize=4, linewidth=1.6)
        ax.annotate(
            NAMES[run],
            (lengths[-1], megabytes[-1]),
            xytext=(0, 8),
            textcoords="offset points",
            ha="right",
            color=colors[run],
        )
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ax.set_ylim(1, 5e4)
    ax.set_xticks(LENGTHS, [f"{n // 1024}k" for n in LENGTHS])
    ax.set_yticks([1, 10, 100, 1e3, 1e4], ["1 MB", "10 MB", "100 MB", "1 GB", "10 GB"])
    ax.set_xlabel("tokens")
    ax.set_ylabel("memory beyond the inputs")
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(axis="y", alpha=0.25)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, facecolor="white", metadata={"Date": None})


if __name__ == "__main__":
    main()
