"""When a bar shows how far reductions are."""

import io
import sys

import pytest
import torch

from regard import progress
from regard.matrix import AttentionMatrix, Entropy, Pool, tile_plan
from tests.attention.cases import case_of
from tests.matrix.cases import matrix_of


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        """Say so."""
        return True


def in_terminal(patch: pytest.MonkeyPatch) -> Terminal:
    """Make stderr a terminal, and return what is written to it."""
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        patch.delenv(name, raising=False)
    patch.setenv("TERM", "xterm")
    stream = Terminal()
    patch.setattr(sys, "stderr", stream)
    return stream


@pytest.fixture
def long_work(monkeypatch: pytest.MonkeyPatch) -> AttentionMatrix:
    """Return a matrix of many tiles, which takes long by a short measure."""
    monkeypatch.setattr(progress, "SOON", 0.0)
    monkeypatch.setattr(tile_plan, "GEMM_ROWS", 7)
    monkeypatch.setattr(tile_plan, "CPU_CHUNK", 499)
    return matrix_of(case_of(queries=67))


def test_a_bar_is_shown_if_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = in_terminal(monkeypatch)
    matrix_of(case_of(queries=67)).summarize(Entropy(), progress=True)
    assert "rows of attention" in terminal.getvalue()
    assert "100%" in terminal.getvalue()


def test_a_bar_that_was_asked_for_is_shown_outside_of_terminals(
    long_work: AttentionMatrix, capfd: pytest.CaptureFixture[str]
) -> None:
    long_work.summarize(Entropy(), progress=True)
    out, err = capfd.readouterr()
    assert out == ""
    assert "rows of attention" in err


def test_a_bar_is_shown_for_long_work(
    monkeypatch: pytest.MonkeyPatch, long_work: AttentionMatrix
) -> None:
    terminal = in_terminal(monkeypatch)
    long_work.entropy()
    assert "rows of attention" in terminal.getvalue()


def test_no_bar_is_shown_if_none_is_wanted(
    monkeypatch: pytest.MonkeyPatch, long_work: AttentionMatrix
) -> None:
    terminal = in_terminal(monkeypatch)
    long_work.summarize(Entropy(), progress=False)
    assert terminal.getvalue() == ""


def test_no_bar_is_shown_for_short_work(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = in_terminal(monkeypatch)
    matrix_of(case_of(queries=7)).entropy()
    assert terminal.getvalue() == ""


@pytest.mark.parametrize("progress", [None, False])
def test_nothing_is_printed_outside_of_terminals(
    long_work: AttentionMatrix, capfd: pytest.CaptureFixture[str], progress: bool | None
) -> None:
    long_work.summarize(Entropy(), progress=progress)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("progress", [True, None, False])
def test_a_bar_changes_no_number(
    monkeypatch: pytest.MonkeyPatch, long_work: AttentionMatrix, progress: bool | None
) -> None:
    in_terminal(monkeypatch)
    (found,) = long_work.summarize(Pool(5), progress=progress)
    case = case_of(queries=67)
    (expected,) = matrix_of(case).summarize(Pool(5), progress=False)
    assert torch.equal(found.cells, expected.cells)


def test_a_bar_without_rich(monkeypatch: pytest.MonkeyPatch, long_work: AttentionMatrix) -> None:
    for name in ("rich.console", "rich.progress"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r'needs rich: pip install "regard\[progress\]"'):
        long_work.summarize(Entropy(), progress=True)
    assert long_work.summarize(Entropy())[0].nats.shape == (2, 3, 67)
