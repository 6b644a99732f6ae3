"""One command a benchmark: `python -m benchmarks.NAME`, with `--json` one line a figure."""
