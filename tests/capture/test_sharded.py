"""Models that several processes share: tensor parallelism, FSDP2, and weights on disk."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import zarr
from torch import Tensor
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

import materials
import regard
from regard.calls import AttentionCall
from tests.capture import sharded
from tests.ranks import Ranks, ranks
from tests.small import SIZES

pytestmark = pytest.mark.processes

IDS = torch.arange(3, 23)[None]
HEADS = {"hidden_size": 64, "num_attention_heads": 8, "num_key_value_heads": 4}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a small model with grouped heads."""
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("llama")
    LlamaForCausalLM(LlamaConfig(**SIZES | HEADS)).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def two() -> Iterator[Ranks]:
    with ranks(2, HF_HUB_OFFLINE="1") as started:
        yield started


def close(found: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    assert len(found) == len(expected) > 1
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5)


def test_heads_have_their_numbers_in_the_model(two: Ranks, path: Path) -> None:
    model = sharded.whole(path)
    with torch.no_grad(), regard.watch(model) as seen:
        model(IDS)
    for rank, calls in enumerate(two(sharded.matrices, path, IDS)):
        assert len(calls) == len(seen)
        for (labels, text, weights), call in zip(calls, seen, strict=True):
            mine = slice(4 * rank, 4 * rank + 4)
            assert labels == list(range(8))[mine]
            assert text == ("0–3 of 8" if rank == 0 else "4–7 of 8")
            torch.testing.assert_close(weights, call.matrix[:, mine].dense(), rtol=0, atol=1e-5)


@pytest.mark.parametrize("count", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_gathered_summaries_are_those_of_the_whole_model(
    two: Ranks, path: Path, count: int
) -> None:
    expected = sharded.summaries(sharded.whole, path, IDS, False)
    arguments = (sharded.summaries, sharded.tensor_parallel, path, IDS, True)
    if count == 2:
        found = two(*arguments)
    else:
        with ranks(count, HF_HUB_OFFLINE="1") as started:
            found = started(*arguments)
    assert len(found) == count
    for one in found:
        close(one, expected)


def test_fully_sharded_layers_have_all_heads(two: Ranks, path: Path) -> None:
    expected = sharded.summaries(sharded.whole, path, IDS, False)
    for gather in (False, True):
        for one in two(sharded.summaries, sharded.fully_sharded, path, IDS, gather):
            close(one, expected)


def test_weights_on_disk(path: Path, tmp_path: Path) -> None:
    expected = sharded.summaries(sharded.whole, path, IDS, False)
    places = {"model.embed_tokens": "cpu", "model.layers.0": "cpu", "model.layers.1": "disk"}
    places |= {"model.norm": "cpu", "model.rotary_emb": "cpu", "lm_head": "cpu"}

    def load(path: Path) -> Any:
        model = AutoModelForCausalLM.from_pretrained(
            path, device_map=places, offload_folder=str(tmp_path)
        )
        assert model.model.layers[1].self_attn.q_proj.weight.is_meta
        return model.eval()

    close(sharded.summaries(load, path, IDS, False), expected)


def refusals(found: list[Any]) -> list[str]:
    assert all(isinstance(one, ValueError) for one in found), found
    return [str(one) for one in found]


def check_recordings(ranks: Ranks, path: Path, ids: Tensor, folder: Path) -> None:
    """Hold recordings of all ranks, written together and gathered, against one process."""
    model = sharded.whole(path)
    with torch.no_grad(), regard.watch(model) as seen:
        model(ids)
    for weights in ranks(sharded.recorded, path, ids, folder):
        if isinstance(weights, Exception):
            raise weights
        for mine, call in zip(weights, seen, strict=True):
            torch.testing.assert_close(mine, call.matrix.dense(), rtol=0, atol=1e-5)
    alone = folder / "alone.regard"
    regard.save(seen, alone, tokens=[str(i) for i in ids[0].tolist()])
    expected = dict(zarr.open_group(alone, mode="r").members(max_depth=None))
    for name in ("together", "gathered"):
        found = dict(zarr.open_group(folder / f"{name}.regard", mode="r").members(max_depth=None))
        assert set(found) == set(expected)
        for one, array in expected.items():
            if isinstance(array, zarr.Array):
                # Maps are rounded to 12 bits, and their means are those of rounded ones.
                is_map = {"mean", "max"} & set(one.split("/"))
                rtol = 2**-10 if is_map else 1e-5
                mine = torch.from_numpy(found[one][...])
                wanted = torch.from_numpy(array[...])
                # Sums over shards round by the size of the largest numbers, as of keys.
                atol = 1e-5 * max(1.0, float(wanted.nan_to_num().abs().max()))
                torch.testing.assert_close(mine, wanted, rtol=rtol, atol=atol, equal_nan=True)
        for mine, theirs in zip(regard.open(folder / f"{name}.regard"), seen, strict=True):
            assert (mine.heads, mine.key_heads) == (theirs.heads, theirs.key_heads)
            weights = theirs.matrix.dense()
            torch.testing.assert_close(mine.matrix.dense(), weights, rtol=0, atol=1e-5)
    together = zarr.open_group(folder / "together.regard", mode="r")
    first = [dict(one.attrs)["regard"]["first"] for one in (together, zarr.open_group(alone))]
    assert first[0] == first[1]
    assert all(one.name.endswith(".regard") for one in folder.iterdir())


def test_one_recording(two: Ranks, path: Path, tmp_path: Path) -> None:
    chance = torch.Generator().manual_seed(0)
    check_recordings(two, path, torch.randint(3, 50, (1, 300), generator=chance), tmp_path)


def test_ranks_may_have_heads_in_any_order(two: Ranks, tmp_path: Path) -> None:
    chance = torch.Generator().manual_seed(0)
    query, key = (torch.randn(1, 6, 20, 8, generator=chance) for _ in range(2))
    sinks = torch.randn(6, generator=chance)
    scores = query.double() @ key.double().mT / 8**0.5
    sink = sinks.double()[:, None, None].expand(1, -1, 20, 1)
    expected = torch.cat([scores, sink], dim=-1).softmax(dim=-1)[..., :-1].float()
    for weights in two(sharded.last_heads_first, query, key, sinks, tmp_path):
        if isinstance(weights, Exception):
            raise weights
        for found in weights:
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)
    (call,) = regard.open(tmp_path / "together.regard")
    torch.testing.assert_close(call.matrix.dense(), expected, rtol=0, atol=1e-6)


def test_one_rank_that_is_wrong_makes_all_heads_wrong(two: Ranks, path: Path) -> None:
    right, wrong = two(sharded.wrong_on_rank_1, path, IDS)
    assert right == [(True, False)] * 2
    assert wrong == [(False, False)] * 2


def test_ranks_share_heads_with_some_others_only() -> None:
    with ranks(4) as started:
        found = started(sharded.in_two_replicas)
    assert found == ["0–0 of 2", "1–1 of 2"] * 2


@pytest.mark.parametrize(
    ("what", "kinds", "message"),
    [
        ("tokens", (ValueError, ValueError), "the same texts, got .* on rank 0 and .* on rank 1"),
        ("folder", (RuntimeError, FileNotFoundError), "there is no folder .*nowhere"),
        ("another folder", (RuntimeError, FileNotFoundError), "must share a file system"),
        ("exists", (FileExistsError, RuntimeError), "exists: remove it, or pass overwrite=True"),
        ("overwritten", (RuntimeError, RuntimeError), "was modified in place"),
        (
            "calls",
            (ValueError, ValueError),
            r"the same module of call 0 .*, got .*layers\.0",
        ),
        ("heads", (ValueError, ValueError), "the ranks must have each head .* once"),
    ],
)
def test_what_is_not_one_recording_raises_on_all(
    two: Ranks, path: Path, tmp_path: Path, what: str, kinds: Any, message: str
) -> None:
    found = two(sharded.saved, path, IDS, tmp_path, what)
    for error, kind in zip(found, kinds, strict=True):
        with pytest.raises(kind, match=message):
            raise error
    assert not (tmp_path / f"{what}.regard" / "zarr.json").exists()
    assert not list(tmp_path.glob("*.lock"))


def test_some_heads_need_the_other_processes(tmp_path: Path) -> None:
    x = torch.randn(1, 2, 5, 4)
    call = AttentionCall.of(regard.AttentionMatrix(x, x)).sharded(0, 8)
    with pytest.raises(ValueError, match=r"has heads 0–1 of 8, .* call save on all ranks"):
        regard.save(call, tmp_path / "some.regard", tokens=["a"] * 5)


def test_what_one_rank_can_not_gather_raises_on_all(two: Ranks, path: Path) -> None:
    other, own = refusals(two(sharded.overwritten, path, IDS))
    assert own.startswith("call 1 (model.layers.1.self_attn): query was modified in place")
    assert other == f"rank 1 has failed: ValueError: {own}"


def test_ranks_must_have_seen_the_same(two: Ranks, path: Path) -> None:
    for message in refusals(two(sharded.with_other_inputs, path)):
        assert message.startswith("the ranks have seen different inputs: ")


def test_heads_of_a_shard_are_not_altered(two: Ranks, path: Path) -> None:
    for message in refusals(two(sharded.ablated, path, IDS)):
        assert message.endswith("can't be altered: 4 of its 8 heads are in other processes")


def test_heads_that_can_not_be_told_are_refused(two: Ranks, path: Path) -> None:
    for problem in two(sharded.without_names, path, IDS):
        assert problem == (
            "its heads are sharded over processes, and which they are can't be told: "
            "no sharded projection to queries was found (q_proj, …)"
        )


def test_a_projection_that_is_whole_when_it_runs(two: Ranks) -> None:
    assert two(sharded.projection_alone, "fsdp") == ["2", "2"]
    for problem in two(sharded.projection_alone, "a plan that gathers"):
        assert problem.endswith("can't be told: 2 rows of the projection for 4 features")
    for problem in two(sharded.projection_alone, "a plan without DTensors"):
        assert problem.endswith("use a transformers that shards with DTensors (5.16)")


def test_gather_needs_processes(path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"needs torch\.distributed: call init_process"):
        sharded.summaries(sharded.whole, path, IDS, True)


@pytest.mark.slow
def test_smollm2_on_three_ranks(tmp_path: Path) -> None:
    """Nine heads, so that two ranks can't share them."""
    path = materials.smollm2()
    ids = torch.arange(100, 164)[None]
    expected = sharded.summaries(sharded.whole, path, ids, False)
    with ranks(3, HF_HUB_OFFLINE="1") as started:
        for one in started(sharded.summaries, sharded.tensor_parallel, path, ids, True):
            close(one, expected)
        check_recordings(started, path, ids, tmp_path)
