"""How layouts grow with the sequence."""

import subprocess
import sys

import pytest
import torch

from regard.patterns import Layout, causal, columns, layout, window

pytestmark = pytest.mark.slow

MILLION = 1 << 20

# Time is that of one thread, as a multiple of what a sixteenth of the length takes. Memory is the
# most that the process ever held; not ru_maxrss, because a process starts with that of the one that
# started it, here the whole test run, and what stays below is not seen.
MEASURE = """
import time
import torch
from regard.patterns import causal, layout, window

def peak_megabytes():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024

def lay_out(length):
    begin = time.process_time()
    layout({pattern}, torch.arange(length), length, block=128)
    return time.process_time() - begin

torch.set_num_threads(1)
lay_out(4096)
short = min(lay_out({length} // 16) for _ in range(3))
before = peak_megabytes()
long = lay_out({length})
grown = peak_megabytes() - before
long = min([long] + [lay_out({length}) for _ in range({more_runs})])

before = peak_megabytes()
kept = torch.ones(512 * 2**20, dtype=torch.uint8)
print(long / short, grown, peak_megabytes() - before)
"""

needs_proc = pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read from /proc")


def measured(pattern: str, more_runs: int) -> tuple[float, float]:
    """Return how much longer a million positions take than a sixteenth, and how many megabytes."""
    program = MEASURE.format(pattern=pattern, length=MILLION, more_runs=more_runs)
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    longer, megabytes, seen = map(float, finished.stdout.split())
    # A tensor of half a gigabyte shows that tensors are seen at all.
    assert seen > 400
    return longer, megabytes


@needs_proc
def test_a_window_over_a_million_positions() -> None:
    longer, megabytes = measured("window(before=255)", more_runs=2)
    assert longer < 64
    assert megabytes < 100


@needs_proc
def test_causal_over_a_million_positions() -> None:
    # 134 million tiles of 128 × 32 are allowed; as runs they are 8,192 rectangles.
    longer, _ = measured("causal()", more_runs=0)
    assert longer < 64


def test_a_window_is_one_strip_but_for_its_first_blocks() -> None:
    found = layout(window(before=255), torch.arange(MILLION), MILLION, block=128)
    *first, rest = found.strips
    assert [strip.num_rectangles for strip in first] == [1, 1]
    assert rest.num_rectangles == MILLION // 128 - 2
    assert rest.mask is not None
    # A block of 128 queries needs 255 + 128 keys, which is 12 key blocks of 32 but for one key.
    assert rest.keys.count == 384
    assert found.starts_all


@pytest.mark.parametrize("length", [1 << 14, 1 << 17])
def test_the_work_of_a_window_grows_with_its_length(length: int) -> None:
    found = layout(window(before=255), torch.arange(length), length, block=128)
    assert found.num_pairs <= 384 * length
    assert len(found.strips) == 3


def test_causal_visits_hardly_more_than_half() -> None:
    length = 1 << 14
    found = layout(causal(), torch.arange(length), length, block=128)
    # Beside what is allowed, each block of 128 queries visits less than half of its own square.
    assert found.num_pairs <= length * (length + 1) // 2 + length * 128 // 2
    assert len(found.strips) <= length // 128


def gathered_keys(found: Layout) -> set[int]:
    return {
        key
        for strip in found.strips
        if strip.keys.step != 1 or strip.keys.table is not None
        for key in strip.keys.index().flatten().tolist()
    }


@pytest.mark.parametrize("block", [32, 64, 128])
def test_a_sparse_transformer_visits_little_more_than_it_allows(block: int) -> None:
    length = 16_384
    pattern = causal() & (window(before=63) | columns(every=64))
    found = layout(pattern, torch.arange(length), length, block=block)
    # The window holds one column; the others before it are allowed besides.
    allowed = sum(min(i + 1, 64) + i // 64 for i in range(length))
    # That is 192 keys per query on average. Visited are 64 + block of those near it and, columns
    # coming 32 at a time, 144 of these: 1.25 pairs for each that is allowed where a block has 32
    # queries, 1.75 where it has 128.
    assert found.num_pairs <= 1.01 * allowed * (208 + block) / 192
    assert len(found.strips) <= 12


def test_the_columns_of_a_sparse_transformer_are_gathered_once() -> None:
    length = 16_384
    pattern = causal() & (window(before=63) | columns(every=64))
    found = layout(pattern, torch.arange(length), length, block=128)
    assert gathered_keys(found) == set(range(0, length, 64))
    assert max(strip.keys.count for strip in found.strips) == length // 64
