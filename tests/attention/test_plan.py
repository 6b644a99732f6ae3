"""`plan` says which backend would run, why, and how much work that is."""

from typing import Any

import pytest
import torch
from torch import Tensor

import regard
from regard import causal, neighbours, plan, prefix, window
from regard.attention import Plan
from regard.attention.choose import BACKENDS, LARGEST_MASK
from regard.positions import alibi, softcap
from tests.attention.cases import relative


def tokens(queries: int, keys: int | None = None, **options: object) -> tuple[Tensor, ...]:
    """Return query, key and value that take up one number, however long they are."""
    keys = queries if keys is None else keys
    number = torch.zeros((), **options)
    return (
        number.expand(1, 2, queries, 16),
        number.expand(1, 2, keys, 16),
        number.expand(1, 2, keys, 16),
    )


def refusal(*inputs: Tensor, **options: Any) -> str:
    """Return the message with which a call is refused, by `attend` as by `plan`."""
    with pytest.raises(ValueError, match="backend") as planned:
        plan(*inputs, **options)
    lse = options.pop("lse", False)
    with pytest.raises(ValueError, match="backend") as attended:
        (regard.attend_with_lse if lse else regard.attend)(*inputs, **options)
    assert str(planned.value) == str(attended.value)
    return str(planned.value)


def test_dense() -> None:
    found = plan(*tokens(1000))
    assert found.backend == "fused"
    assert found.density == 1.0
    # Two products of 16 multiplications and additions each, for each pair of each head.
    assert found.flops == 2 * 2 * 16 * 2 * 1000 * 1000
    assert str(found) == (
        "fused: every query may attend to every key. All of the pairs are computed, "
        "128 million floating-point operations."
    )


def test_causal() -> None:
    found = plan(*tokens(1000), pattern=causal())
    assert found.backend == "fused"
    assert found.reason == "the kernel has a causal mask"
    # Query i sees i + 1 keys: 1 + 2 + … + 1000.
    assert found.density == pytest.approx(500500 / 1000**2, rel=1e-12)
    assert found.flops == pytest.approx(2 * 2 * 16 * 2 * 500500, rel=1e-12)


def test_window() -> None:
    found = plan(*tokens(1024), pattern=causal() & window(before=31))
    assert found.backend == "blocks"
    # 16 blocks of 64 queries see 64 keys at their own place and 32 before, the first none before.
    assert found.density == (16 * 64 * 96 - 64 * 32) / 1024**2
    assert found.flops == 2 * 2 * 16 * 2 * (16 * 64 * 96 - 64 * 32)
    assert str(found) == (
        "blocks: the pattern leaves many blocks empty, which it skips. "
        "9.2 % of the pairs are computed, 12.3 million floating-point operations."
    )


def test_short_sequences() -> None:
    found = plan(*tokens(300), pattern=causal() & window(before=31))
    assert found.backend == "fused"
    assert found.reason == "there are few pairs, and computing all of them is fastest"
    assert found.density == 1.0


def test_more_heads_make_more_pairs() -> None:
    many = [tensor[:, :1].expand(8, 64, -1, -1) for tensor in tokens(300)]
    assert plan(*many, pattern=causal() & window(before=31)).backend == "blocks"


def test_a_graph_whose_keys_would_be_copied_one_by_one() -> None:
    edges = torch.randint(0, 2048, (400_000, 2), generator=torch.Generator().manual_seed(0))
    found = plan(*tokens(2048), pattern=neighbours(edges))
    assert found.backend == "fused"
    assert plan(*tokens(2048), pattern=neighbours(edges[:2048])).backend == "blocks"


def test_dropout() -> None:
    found = plan(*tokens(1024), pattern=causal() & window(before=31), dropout=0.1)
    assert found.backend == "fused"
    assert found.reason == "it is the only fused kernel with dropout"


def test_softcap() -> None:
    found = plan(*tokens(1024), pattern=causal(), bias=softcap(50.0))
    assert found.backend == "blocks"
    assert found.reason == "the bias is not additive, so scores are materialised"


NEARLY_EVERYONE = causal() | prefix(900)


def test_a_pattern_with_few_empty_blocks() -> None:
    found = plan(*tokens(1024), pattern=NEARLY_EVERYONE)
    assert found.backend == "fused"
    assert found.reason == "the pattern leaves too few blocks empty for skipping them to pay"
    assert found.density == 1.0


def test_a_large_pattern_with_few_empty_blocks() -> None:
    length = 8209
    assert length**2 > LARGEST_MASK
    found = plan(*tokens(length), pattern=causal() | prefix(7000))
    assert found.backend == "blocks"
    assert found.reason == "it needs no mask as large as the matrix"
    assert 0.8 < found.density < 1.0


def test_a_learned_bias() -> None:
    bias = relative(2, torch.Generator(), torch.float32)
    found = plan(*tokens(1024), pattern=NEARLY_EVERYONE, bias=bias)
    assert found.backend == "blocks"
    assert found.reason == "it needs no mask as large as the matrix"
    with torch.no_grad():
        assert plan(*tokens(1024), pattern=NEARLY_EVERYONE, bias=bias).backend == "fused"


@pytest.mark.parametrize("lse", [False, True])
def test_a_decoding_step(lse: bool) -> None:
    found = plan(*tokens(1, 4099), pattern=causal(), lse=lse)
    assert found.backend == "fused"
    assert found.reason == "every query may attend to every key"
    assert found.density == 1.0
    assert found.flops == 2 * 2 * 16 * 2 * 4099


@pytest.mark.parametrize("keys", [17, 4096, 100_000])
def test_a_decoding_step_with_a_window(keys: int) -> None:
    found = plan(*tokens(1, keys), pattern=causal() & window(before=31))
    assert found.backend == "fused"
    seen = min(keys, 32)
    assert found.density == seen / keys
    assert found.flops == pytest.approx(2 * 2 * 16 * 2 * seen)


def test_a_pattern_that_hides_nothing_is_dense() -> None:
    assert plan(*tokens(1024), pattern=window(before=1023, after=1023)).backend == "fused"
    assert plan(*tokens(1024), pattern=causal(), positions=1023).reason.startswith("every query")


def test_a_batch_axis_counts_the_pairs_of_each_sequence() -> None:
    query, key, value = (x.expand(2, -1, -1, -1) for x in tokens(1024))
    found = plan(query, key, value, pattern=regard.padding([1024, 0]))
    assert found.backend == "blocks"
    assert found.density == 0.5
    assert found.flops == 2 * 2 * 16 * 2 * 1024 * 1024


def test_attend_runs_what_plan_says(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []
    for name, backend in list(BACKENDS.items()):

        def run(call: object, lse: bool, name: str = name, real: object = backend.run) -> object:
            ran.append(name)
            return real(call, lse)

        monkeypatch.setitem(BACKENDS, name, backend._replace(run=run))
    for pattern in (None, causal(), causal() & window(before=31)):
        for name in ("auto", "reference", "fused", "blocks"):
            options = {"pattern": pattern, "backend": name}
            wanted = plan(*tokens(521), **options).backend
            regard.attend(*tokens(521), **options)
            assert ran.pop() == wanted
            regard.attend_with_lse(*tokens(521), **options)
            assert ran.pop() == wanted
            assert not ran


@pytest.mark.parametrize("name", ["reference", "fused", "blocks", "flex"])
def test_a_named_backend_is_taken(name: str) -> None:
    found = plan(*tokens(67), pattern=causal() & window(before=31), backend=name)
    assert found.backend == name
    assert found.reason == "it was requested"


def test_an_unknown_backend_lists_the_choices() -> None:
    assert refusal(*tokens(7), backend="cudnn") == (
        'backend must be one of "auto", "reference", "fused", "blocks", "flex", got "cudnn"'
    )


@pytest.mark.parametrize(
    ("backend", "options", "reason"),
    [
        (
            "fused",
            {"bias": softcap(50.0)},
            "its kernel supports only additive biases, not Softcap(cap=50.0)",
        ),
        (
            "fused",
            {"dropout": 0.1, "lse": True},
            "its kernel returns no log-sum-exp with dropout",
        ),
        ("blocks", {"dropout": 0.1}, "its kernels have no dropout"),
        ("flex", {"dropout": 0.1}, "FlexAttention has no dropout"),
        (
            "flex",
            {"lse": True},
            "FlexAttention returns no log-sum-exp on the CPU; "
            'choose backend="blocks" or backend="fused"',
        ),
        (
            "flex",
            {"pattern": causal() & ~neighbours([(0, 1)])},
            'FlexAttention can\'t search an edge list; choose backend="blocks"',
        ),
    ],
)
def test_a_named_backend_that_cannot_serve_says_why(
    backend: str, options: dict[str, object], reason: str
) -> None:
    message = refusal(*tokens(7), backend=backend, **options)
    assert message == f'backend "{backend}" can\'t serve this call: {reason}'


def test_flex_refuses_to_train_on_the_cpu() -> None:
    reason = (
        'backend "flex" can\'t serve this call: FlexAttention has no backward on the CPU; '
        'call it under torch.no_grad() or choose backend="blocks"'
    )
    learned = relative(2, torch.Generator(), torch.float32)
    for inputs, bias in (
        (tokens(7, requires_grad=True), None),
        (tokens(7), learned),
        (tokens(7), torch.zeros(1, 1, 7, 7, requires_grad=True)),
    ):
        assert refusal(*inputs, bias=bias, backend="flex") == reason
        with torch.no_grad():
            assert plan(*inputs, bias=bias, backend="flex").backend == "flex"


@pytest.mark.parametrize(
    ("backend", "options", "reason"),
    [
        ("fused", {"lse": True}, "its kernel returns no log-sum-exp on meta"),
        (
            "blocks",
            {"pattern": causal()},
            "PyTorch has no kernel that returns the log-sum-exp on meta",
        ),
    ],
)
def test_devices_without_a_kernel(backend: str, options: dict[str, object], reason: str) -> None:
    message = refusal(*tokens(7, device="meta"), backend=backend, **options)
    assert message == f'backend "{backend}" can\'t serve this call: {reason}'


def test_the_reference_serves_everything() -> None:
    found = plan(
        *tokens(7),
        pattern=causal() & neighbours([(0, 1)]),
        bias=softcap(50.0),
        dropout=0.1,
        backend="reference",
        lse=True,
    )
    assert found.backend == "reference"
    assert found.density == 1.0


@pytest.mark.parametrize(
    ("density", "flops", "sentence"),
    [
        (1.0, 999.0, "All of the pairs are computed, 999 floating-point operations."),
        (
            0.9999,
            1e3,
            "Nearly all of the pairs are computed, 1 thousand floating-point operations.",
        ),
        (0.994, 1.5e6, "99 % of the pairs are computed, 1.5 million floating-point operations."),
        (0.0123, 2e9, "1.2 % of the pairs are computed, 2 billion floating-point operations."),
        (0.0, 3e12, "0 % of the pairs are computed, 3 trillion floating-point operations."),
        (0.5, 999_700.0, "50 % of the pairs are computed, 1 million floating-point operations."),
    ],
)
def test_sentences(density: float, flops: float, sentence: str) -> None:
    assert str(Plan("blocks", "why", density, flops)) == f"blocks: why. {sentence}"


def test_a_million_tokens_are_counted_without_an_exponent() -> None:
    assert "e+" not in str(Plan("blocks", "why", 0.5, 4e15))


def test_alibi_with_a_window_skips_blocks() -> None:
    found = plan(*tokens(1024), pattern=causal() & window(before=31), bias=alibi(2))
    assert found.backend == "blocks"
    assert found.density == (16 * 64 * 96 - 64 * 32) / 1024**2


def test_a_bias_for_many_heads_is_not_written_down_whole() -> None:
    """Each head has a mask of its own: together they may be too large where one is not."""
    few = tokens(1024)
    many = [tensor[:, :1].expand(1, 65, -1, -1) for tensor in few]
    assert plan(*few, bias=alibi(2)).backend == "fused"
    assert plan(*many, bias=alibi(65)).backend == "blocks"
