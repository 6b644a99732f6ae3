"""Recordings that are damaged, incomplete or of another time, and runs that are killed."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from regard import AttentionMatrix, causal
from regard.calls import AttentionCall
from regard.recording import RecordingError, open, save
from tests.hostile.seal import seal
from tests.recording import killing_ranks
from tests.recording.conftest import Made, tokens_of
from tests.recording.killing import record


@pytest.fixture
def copy(made: Made, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made.path, tmp_path / "copy.regard"))


def change(path: Path, edit: Callable[[dict[str, object]], object]) -> None:
    """Edit what a recording says of itself, in its own description and in the joint one."""
    for file in (path / "zarr.json",):
        data = json.loads(file.read_text())
        edit(data)
        file.write_text(json.dumps(data))


def test_what_is_no_recording(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match=r"nothing.regard does not exist: make one with"):
        open(tmp_path / "nothing.regard")
    (tmp_path / "empty").mkdir()
    with pytest.raises(RecordingError, match="empty is not a recording"):
        open(tmp_path / "empty")
    (tmp_path / "book.txt").write_text("x")
    rule = "is a file, .* `regard record book.txt --model MODEL --out book.regard`$"
    with pytest.raises(RecordingError, match=rule):
        open(tmp_path / "book.txt")


def test_another_zarr_group(tmp_path: Path) -> None:
    import zarr

    zarr.open_group(tmp_path / "other", mode="w")
    with pytest.raises(RecordingError, match="is not a recording of Regard"):
        open(tmp_path / "other")


def test_a_later_version(copy: Path) -> None:
    change(copy, lambda data: data["attributes"]["regard"].update(version=3))
    with pytest.raises(RecordingError, match=r"version 3, .* reads up to 2: upgrade Regard"):
        open(copy)


@pytest.mark.parametrize(
    "wrong",
    [
        {"texts": []},
        {"calls": -1},
        {"error": "large"},
        {"digest": "../../etc"},
        {"unheard_of": 1},
        {"complete": None},
    ],
)
def test_a_description_that_is_wrong(copy: Path, wrong: dict[str, object]) -> None:
    change(copy, lambda data: data["attributes"]["regard"].update(wrong))
    with pytest.raises(RecordingError, match=f"is damaged: {next(iter(wrong))}"):
        open(copy)


def test_a_truncated_description(copy: Path) -> None:
    file = copy / "zarr.json"
    file.write_text(file.read_text()[:1000])
    with pytest.raises(RecordingError, match="can't open"):
        open(copy)


def test_more_calls_than_there_are(copy: Path) -> None:
    change(copy, lambda data: data["attributes"]["regard"].update(calls=3))
    with pytest.raises(RecordingError, match="it has no calls/0002"):
        open(copy)


def _call(data: dict[str, object], number: str) -> dict[str, object]:
    return data["consolidated_metadata"]["metadata"][f"calls/{number}"]["attributes"]["regard"]


def test_wrong_shapes(copy: Path) -> None:
    change(copy, lambda data: _call(data, "0000").update(key_heads=4))
    with pytest.raises(RecordingError, match=r"calls/0000/key must be float32 of shape \[4, 1100"):
        open(copy)


def test_a_call_that_does_not_fit_its_text(copy: Path) -> None:
    change(copy, lambda data: data["attributes"]["regard"]["texts"][0].update(tokens=7))
    with pytest.raises(RecordingError, match="calls/0000 does not fit the length of its text"):
        open(copy)


def test_a_pattern_that_is_not_known(copy: Path) -> None:
    change(copy, lambda data: _call(data, "0001").update(pattern={"kind": "moon"}))
    seal(copy)
    with pytest.raises(RecordingError, match="'moon'"):
        _ = open(copy)[1].matrix


def chunks(path: Path, array: str) -> list[Path]:
    return sorted(file for file in (path / array / "c").rglob("*") if file.is_file())


@pytest.mark.parametrize("array", ["calls/0000/query", "calls/0000/key", "calls/0000/lse"])
def test_a_missing_chunk_of_queries_or_keys(copy: Path, array: str) -> None:
    for file in chunks(copy, array):
        file.unlink()
    recording = open(copy)
    with pytest.raises(RecordingError, match=f"{array}/c/0/0.* is missing"):
        recording.tile(0, 0, 3, 0, 0)
    with pytest.raises(RecordingError, match="is missing"):
        recording.top_keys(0, 0, range(16), 4)
    # All else goes on.
    recording.tile(1, 0, 3, 0, 0)


def test_a_missing_chunk_of_a_map(copy: Path) -> None:
    for file in chunks(copy, "calls/0000/max/8"):
        file.unlink()
    with pytest.raises(RecordingError, match="max/8/c/1/0/0 is missing"):
        open(copy).tile(0, 1, 0, 0, 0, "max")
    open(copy).tile(0, 1, 0, 0, 0, "mean")


@pytest.mark.parametrize("array", ["calls/0001/query", "calls/0001/mean/8", "texts/0/tokens"])
@pytest.mark.parametrize("how", ["cut off", "changed"])
def test_a_damaged_chunk(copy: Path, array: str, how: str) -> None:
    for file in chunks(copy, array):
        data = bytearray(file.read_bytes())
        if how == "cut off":
            del data[len(data) // 2 :]
        else:
            data[len(data) // 2] ^= 0xFF
        file.write_bytes(data)
    recording = open(copy)

    def look() -> None:
        recording.tile(1, 0, 3, 0, 0)
        recording.tile(1, 0, 0, 0, 0)
        assert recording.tokens

    with pytest.raises(RecordingError, match=f"{array} is damaged"):
        look()


def test_a_missing_array(copy: Path) -> None:
    change(copy, lambda data: data["consolidated_metadata"]["metadata"].pop("calls/0001/lse"))
    shutil.rmtree(copy / "calls/0001/lse")
    with pytest.raises(RecordingError, match="calls/0001 is damaged: it has no lse"):
        open(copy)


@pytest.mark.usefixtures("unchecked")
def test_an_interrupted_run_goes_on(tmp_path: Path) -> None:
    torch.manual_seed(0)
    x = torch.randn(1, 2, 300, 8)
    calls = [AttentionMatrix(x * (1 + layer), x, pattern=causal()) for layer in range(3)]

    class Interrupted(Exception):
        """Somebody pulled the plug."""

    class Plug(AttentionCall):
        @property
        def matrix(self) -> AttentionMatrix:
            if (tmp_path / "it.regard.partial/calls/0001/zarr.json").exists():
                raise Interrupted
            return calls[2]

    path = tmp_path / "it.regard"
    with pytest.raises(Interrupted):
        save([*calls[:2], Plug.of(calls[2], "layers.2", index=2)], path, tokens=tokens_of(300))
    with pytest.raises(RecordingError, match="is incomplete: recording it was interrupted"):
        open(path)
    with pytest.raises(RecordingError, match="is incomplete"):
        open(tmp_path / "it.regard.partial")
    before = (tmp_path / "it.regard.partial/calls/0001/zarr.json").stat().st_mtime_ns
    save(calls, path, tokens=tokens_of(300))
    # What was finished was not done again, and what came of it is whole.
    assert (path / "calls/0001/zarr.json").stat().st_mtime_ns == before
    for call, matrix in zip(open(path), calls, strict=True):
        torch.testing.assert_close(call.matrix[0].dense(), matrix[0].dense())
    assert [file.name for file in tmp_path.iterdir()] == ["it.regard"]


def test_an_interrupted_run_of_something_else_is_not_taken_over(tmp_path: Path) -> None:
    x = torch.randn(1, 2, 300, 8)
    path = tmp_path / "it.regard"
    save(AttentionMatrix(x, x), path, tokens=tokens_of(300))
    path.rename(tmp_path / "it.regard.partial")
    found = save(AttentionMatrix(2 * x, x), path, tokens=tokens_of(300))
    torch.testing.assert_close(found[0].matrix[0].dense(), AttentionMatrix(2 * x, x)[0].dense())


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("moments", [10, pytest.param(0, id="all", marks=pytest.mark.thorough)])
def test_killed_at_some_moments(
    moments: int, run_python: Callable[..., str], tmp_path: Path
) -> None:
    killed = json.loads(run_python("-m", "tests.recording.killing", str(tmp_path), str(moments)))
    assert len(killed) >= 10
    wanted = [call.matrix[0].lse for call in open(tmp_path / "whole.regard")]
    begun = 0
    for moment in killed:
        path, partial = tmp_path / f"{moment}.regard", tmp_path / f"{moment}.regard.partial"
        if not path.exists():
            # Nothing, or something that says that it is incomplete.
            with pytest.raises(RecordingError, match=r"does not exist|is incomplete"):
                open(path)
            begun += partial.exists()
            record(path)
        # Otherwise it was killed when only the lock was left to be removed.
        assert not partial.exists()
        found = [call.matrix[0].lse for call in open(path)]
        assert all(map(torch.equal, found, wanted))
    assert begun >= len(killed) - 3


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
def test_a_killed_rank(run_python: Callable[..., str], tmp_path: Path) -> None:
    """Whichever rank is killed, the other raises, and both can continue."""
    killed = json.loads(run_python("-m", "tests.recording.killing_ranks", str(tmp_path), "10"))
    assert len(killed) >= 10
    wanted = [call.matrix.dense() for call in killing_ranks.calls()]
    assert sum(left for *_, left, _ in killed) >= 6
    for rank, moment, raised, _, again in killed:
        path = tmp_path / f"{rank}.{moment}.regard"
        assert raised or not again
        assert not any(again)
        for call, weights in zip(open(path), wanted, strict=True):
            torch.testing.assert_close(call.matrix.dense(), weights, rtol=0, atol=1e-6)
    # Of one that was killed at the very end, the lock may be left.
    assert {one.suffix for one in tmp_path.iterdir()} <= {".regard", ".lock"}
