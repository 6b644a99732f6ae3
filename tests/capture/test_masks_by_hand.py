"""Which pairs are masked in attention that is written down: told by what happens to its scores."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import transformers
from torch import Tensor

import regard
from regard.calls import AttentionCall
from regard.matrix import Hits, Received
from tests.capture.calls import Kernel, numbers

pytestmark = pytest.mark.usefixtures("one_thread", "quiet_transformers")

BATCH, HEADS, COUNT, DIM = 2, 3, 7, 4
ORDER = torch.ones(COUNT, COUNT, dtype=torch.bool).tril()
KEPT = torch.arange(COUNT) >= torch.tensor([0, 2])[:, None, None]
"""Which keys are no padding, which the second sequence has at the left."""
LOWEST = torch.finfo(torch.float32).min


def given() -> list[Tensor]:
    return [numbers(BATCH, HEADS, COUNT, DIM, seed=seed).float() for seed in (1, 2, 3)]


def watched(attention: Callable[..., Tensor], **options: Any) -> AttentionCall:
    model = Kernel(attention)
    with regard.watch(model, **options) as seen:
        model(*given())
    return seen[0]


def softmax_of(change: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    """Return attention whose scores are changed before the softmax."""

    def attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return change(query @ key.mT / 2).softmax(dim=-1) @ value

    return attention


def added(allowed: Tensor, lowest: float, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.zeros(allowed.shape, dtype=dtype).masked_fill(~allowed, lowest)


def in_place(scores: Tensor) -> Tensor:
    scores += added(ORDER, -1e9)
    scores.masked_fill_(~KEPT[:, None], -1e9)
    return scores


def with_entries_set(scores: Tensor) -> Tensor:
    scores[:, :, ~ORDER] = -torch.inf
    scores[1, :, :, :2] = -1e9
    return scores


def with_entries_set_again(scores: Tensor) -> Tensor:
    """A row is masked, and then set to something else."""
    scores = scores.masked_fill(~(ORDER & KEPT[:, None]), -torch.inf)
    scores[:, :, 6] = -torch.inf
    scores[0, :, 6] = 0.25
    scores[1, :, 6, 2:] = 0.25
    return scores


def flattened(scores: Tensor) -> Tensor:
    scores = scores.masked_fill(~ORDER, -1e4).flatten(0, 1)
    kept = KEPT.repeat_interleave(HEADS, dim=0)
    return torch.where(kept, scores, torch.tensor(-1e4)).unflatten(0, (BATCH, HEADS))


def in_float16(scores: Tensor) -> Tensor:
    lowest = torch.finfo(torch.float16).min
    scores = scores.half() + added(ORDER, lowest, torch.float16)
    return scores.masked_fill(~KEPT[:, None], lowest).float()


def turned(scores: Tensor) -> Tensor:
    scores = scores.transpose(2, 3).contiguous().masked_fill(~ORDER.T, LOWEST)
    return scores.transpose(2, 3).masked_fill(~KEPT[:, None], LOWEST)


CHANGES: dict[str, Callable[[Tensor], Tensor]] = {
    "filled": lambda s: s.masked_fill(~ORDER, -torch.inf).masked_fill(~KEPT[:, None], -1e9),
    "chosen": lambda s: torch.where(ORDER & KEPT[:, None], s, LOWEST),
    "added": lambda s: s + added(ORDER & KEPT[:, None], -1e9),
    "added twice": lambda s: s + added(ORDER, LOWEST) + added(KEPT[:, None], LOWEST),
    "a sum of masks": lambda s: s + (added(ORDER, -1e4) + added(KEPT[:, None], -1e4)),
    "subtracted": lambda s: s - added(ORDER & KEPT[:, None], 1e9),
    "added first": lambda s: added(ORDER & KEPT[:, None], -1e4) + s,
    "with a bias": lambda s: (s + numbers(COUNT, COUNT).float()).masked_fill(
        ~(ORDER & KEPT[:, None]), LOWEST
    ),
    "with a bias in one tensor": lambda s: (
        s + numbers(HEADS, COUNT, COUNT).float().masked_fill(~(ORDER & KEPT[:, None]), LOWEST)
    ),
    "bounded": lambda s: torch.max(s + added(ORDER & KEPT[:, None], LOWEST), torch.tensor(LOWEST)),
    "clamped": lambda s: s.masked_fill(~(ORDER & KEPT[:, None]), -torch.inf).clamp(min=LOWEST),
    "scaled": lambda s: 0.5 * s.masked_fill(~(ORDER & KEPT[:, None]), -1e9) / 2.0,
    "capped": lambda s: (s / 5).tanh().mul(5).masked_fill(~(ORDER & KEPT[:, None]), -torch.inf),
    "cast": lambda s: s.double().masked_fill(~(ORDER & KEPT[:, None]), -torch.inf).to(s),
    "in place": in_place,
    "entries set": with_entries_set,
    "entries set again": with_entries_set_again,
    "flattened": flattened,
    "float16": in_float16,
    "turned": turned,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("mode", [torch.no_grad, torch.enable_grad, torch.inference_mode])
def test_masks_are_followed(change: Callable[[Tensor], Tensor], mode: Any) -> None:
    with mode():
        call = watched(softmax_of(change))
    assert repr(call.pattern) == "causal() & padding([7, 5], starts=[0, 2])"
    allowed = ORDER & KEPT
    expected = allowed.sum(dim=1)[:, None].expand(-1, HEADS, -1)
    received = call.matrix.received()
    assert torch.equal(received.queries, expected)
    total = call.matrix.dense().masked_fill(~allowed[:, None], 0.0).sum(dim=2)
    torch.testing.assert_close(received.mean.nan_to_num(), total / expected.clamp(min=1))
    targets = regard.pairs(queries=[1, 2], keys=[0])
    assert call.matrix.summarize(Hits(targets))[0].rows.tolist() == [[2] * HEADS, [0] * HEADS]


def test_without_a_mask_all_pairs_are_allowed() -> None:
    call = watched(softmax_of(lambda scores: scores * 2))
    assert repr(call.pattern) == "everyone()"
    assert (call.matrix.received().queries == COUNT).all()


def test_a_bias_may_reach_far_by_small_steps() -> None:
    """As ALiBi does in long texts, and a factor may be a temperature."""
    distance = -torch.arange(400.0)[:, None].sub(torch.arange(400.0)).abs()
    attention = softmax_of(lambda s: 2.5 * torch.full((HEADS, 1, 1), 4.0) * s + distance)
    model = Kernel(attention)
    with regard.watch(model) as seen:
        model(*(numbers(1, HEADS, 400, DIM, seed=seed).float() for seed in (1, 2, 3)))
    assert seen[0].pattern == regard.everyone()


def by_exponentials(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    scores = (query @ key.mT).masked_fill(~ORDER, -torch.inf)
    powers = (scores - scores.amax(dim=-1, keepdim=True)).exp()
    return powers / powers.sum(dim=-1, keepdim=True) @ value


def with_a_sink(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    scores = (query @ key.mT).masked_fill(~ORDER, -torch.inf)
    sink = torch.zeros(*scores.shape[:3], 1)
    return torch.cat([scores, sink], dim=-1).softmax(dim=-1)[..., :-1] @ value


def without_nan(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    weights = (query @ key.mT).masked_fill(~ORDER, -torch.inf).softmax(dim=-1)
    return F.dropout(weights.nan_to_num(0.0).masked_fill(~ORDER, 0.0), 0.0) @ value


def less_others(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """As in differential attention."""
    first, second = (
        (x @ key.mT).masked_fill(~ORDER, -torch.inf).softmax(dim=-1) for x in (query, query.flip(3))
    )
    return (first - 0.3 * second) @ value


@pytest.mark.parametrize("attention", [by_exponentials, with_a_sink, without_nan, less_others])
def test_masks_are_followed_to_the_product(attention: Callable[..., Tensor]) -> None:
    call = watched(attention)
    assert repr(call.pattern) == "causal()"
    assert call.matrix.received().queries[0, 0].tolist() == [7, 6, 5, 4, 3, 2, 1]


ALIBI = -0.5 * (torch.arange(COUNT)[:, None] - torch.arange(COUNT)).float()


def masked_after_the_softmax(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return (query @ key.mT).softmax(dim=-1).masked_fill(~ORDER, 0.0) @ value


def multiplied_by_a_mask(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return ((query @ key.mT).softmax(dim=-1) * ORDER.float()) @ value


def modified_unseen(scores: Tensor) -> Tensor:
    scores.index_fill_(3, torch.tensor([6]), -torch.inf)
    return scores


UNKNOWN: dict[str, Callable[..., Tensor]] = {
    "not followed": softmax_of(
        lambda s: torch.full_like(s, -torch.inf).scatter(-1, s.topk(3).indices, s.topk(3).values)
    ),
    "modified": softmax_of(modified_unseen),
    "a mask among biases": softmax_of(lambda s: s + ALIBI.masked_fill(~ORDER, -1e9)),
    "a steep bias": softmax_of(lambda s: s + 20000 * ALIBI.abs().neg()),
    "a mask that leaves some weight": softmax_of(lambda s: s.masked_fill(~ORDER, -5000.0)),
    "a low number": softmax_of(lambda s: s + -1000.0 * ~ORDER),
    "a low number subtracted": softmax_of(lambda s: s - 1000.0 * ~ORDER),
    "a low number and a bias": softmax_of(lambda s: s + (ALIBI / 100 - 1000.0 * ~ORDER)),
    "a logarithm": softmax_of(lambda s: s + (ORDER + 1e-45).log()),
    "low numbers chosen": softmax_of(lambda s: torch.where(ORDER, s, torch.full_like(s, -500.0))),
    "a minimum": softmax_of(
        lambda s: torch.minimum(s, torch.where(ORDER, torch.inf, torch.tensor(-1000.0)))
    ),
    "clamped": softmax_of(lambda s: s.clamp(max=torch.where(ORDER, 1e4, torch.tensor(-1000.0)))),
    "turned round": softmax_of(lambda s: -((-s).masked_fill(~ORDER, 1e9))),
    "by a factor": softmax_of(lambda s: s.abs() * torch.where(ORDER, 1.0, torch.tensor(-1e9))),
    "interpolated": softmax_of(lambda s: torch.lerp(s, torch.full_like(s, -1e3), (~ORDER).float())),
    "by heads": softmax_of(
        lambda s: s.masked_fill(~(ORDER | (torch.arange(HEADS) == 1)[:, None, None]), -torch.inf)
    ),
    "after the softmax": masked_after_the_softmax,
    "by a product": multiplied_by_a_mask,
}


@pytest.mark.parametrize("attention", UNKNOWN.values(), ids=UNKNOWN)
def test_an_unknown_mask_is_not_counted(attention: Callable[..., Tensor], tmp_path: Path) -> None:
    rule = r"^which pairs are masked is unknown: the model changes its scores by functions that"
    call = watched(attention)
    assert call.pattern is None
    for reduction in (Received(), Hits(regard.causal())):
        with pytest.raises(ValueError, match=rule):
            call.matrix.summarize(reduction)
    # All else is there, and is stated to be counted.
    stated = regard.AttentionMatrix.from_weights(call.matrix.dense(), pattern=regard.everyone())
    assert (stated.received().queries == COUNT).all()
    failed = watched(attention, keep=[Received()])
    assert failed.problem.startswith("which pairs are masked is unknown")

    model = Kernel(attention)
    with regard.watch(model) as seen:
        model(*(x[:1] for x in given()))
    regard.save(seen, tmp_path / "unknown.regard", tokens=list("abcdefg"))
    recording = regard.open(tmp_path / "unknown.regard")
    with pytest.raises(ValueError, match=rule):
        recording[0].matrix.received()
    torch.testing.assert_close(recording[0].matrix.dense(), seen[0].matrix.dense())


def test_a_bias_of_a_kernel_may_hold_an_unknown_mask() -> None:
    bias = ALIBI.masked_fill(~ORDER, -1e9)
    call = watched(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=bias))
    assert call.check.passed
    with pytest.raises(ValueError, match=r"^which pairs are masked is unknown"):
        call.matrix.received()


SIZES = {"vocab_size": 64, "bos_token_id": 1, "eos_token_id": 2}
WITH_OWN_SOFTMAX = {
    "Bloom": {"hidden_size": 32, "n_layer": 2, "n_head": 4},
    "GPTNeo": {
        "hidden_size": 32,
        "num_layers": 2,
        "num_heads": 4,
        "attention_types": [[["global", "local"], 1]],
        "max_position_embeddings": 64,
    },
    "GPTJ": {"n_embd": 32, "n_layer": 2, "n_head": 4, "rotary_dim": 4, "n_positions": 64},
    "Mpt": {"d_model": 32, "n_layers": 2, "n_heads": 4, "max_seq_len": 64},
    "CodeGen": {"n_embd": 32, "n_layer": 2, "n_head": 4, "rotary_dim": 4, "n_positions": 64},
    "XGLM": {
        "d_model": 32,
        "num_layers": 2,
        "attention_heads": 4,
        "ffn_dim": 40,
        "max_position_embeddings": 64,
    },
    "Falcon": {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "alibi": True,
        "new_decoder_architecture": False,
        "multi_query": False,
    },
}


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("name", WITH_OWN_SOFTMAX)
def test_models_with_a_softmax_of_their_own(name: str, padded: bool) -> None:
    config = getattr(transformers, f"{name}Config")(**SIZES, **WITH_OWN_SOFTMAX[name])
    torch.manual_seed(0)
    model = getattr(transformers, f"{name}Model")(config).eval()
    ids, mask = torch.randint(5, 60, (2, 6)), torch.ones(2, 6, dtype=torch.long)
    mask[1, :2] = int(not padded)
    with torch.no_grad(), regard.watch(model) as seen:
        model(input_ids=ids, attention_mask=mask)
    seen.verify()
    allowed = torch.ones(6, 6, dtype=torch.bool).tril() & mask.bool()[:, None]
    expected = allowed.sum(dim=1)[:, None].expand(-1, 4, -1)
    for call in seen:
        assert torch.equal(call.matrix.received().queries, expected), call
