"""What `watch` sees of attend and of what is made of it; and that others may override attend."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

import regard
from regard.capture import Seen
from regard.layers import MultiHeadAttention
from regard.models import ImageEncoder, TextDecoder, TextEncoder
from regard.positions import Relative, alibi, softcap
from tests.capture.calls import (
    BATCH,
    HEADS,
    KEPT,
    KEYS,
    MODEL_DIM,
    QUERIES,
    Kernel,
    assert_weights,
    inputs,
    layers,
    numbers,
    softmax_of,
    tokens,
    watched,
)

pytestmark = pytest.mark.usefixtures("one_thread")


# attend, and what is made of it


def with_lse(*args: Any, **options: Any) -> tuple[Tensor, Tensor]:
    return regard.attend_with_lse(*args, **options)


CAP = 1.5
POSITIONS = torch.tensor([6, 0, 3, 3, 5])


class Attended(NamedTuple):
    """A call of `attend`, and what it means.

    Attributes:
        options: what it is called with.
        allowed: who may look at whom, or None for everyone.
        change: what is done to scores.
        heads: the number of query heads.
        key_heads: the number of key heads.
    """

    options: dict[str, Any]
    allowed: Tensor | None = None
    change: Callable[[Tensor], Tensor] = lambda scores: scores
    heads: int = HEADS
    key_heads: int = HEADS


def distances(positions: Sequence[int] | Tensor) -> Tensor:
    return torch.as_tensor(positions)[:, None] - torch.arange(KEYS)


def linear(scores: Tensor) -> Tensor:
    return scores - alibi(HEADS).slopes[:, None, None] * distances(range(2, 7)).abs()


LAST = distances(range(KEYS - QUERIES, KEYS))
"""How far before its query each key stands, if the last query stands at the last key."""

ATTENDED = {
    "plain": Attended({}),
    "scale": Attended({"scale": 0.9}),
    "causal": Attended({"pattern": regard.causal()}, LAST >= 0),
    "window": Attended(
        {"pattern": regard.causal() & regard.window(before=2)}, (LAST >= 0) & (LAST <= 2)
    ),
    "padding": Attended({"pattern": regard.padding([KEYS, 4])}, KEPT[:, None, None]),
    "gaps": Attended(
        {"pattern": regard.columns(every=3)},
        (torch.arange(KEYS) % 3 == 0).expand(QUERIES, -1),
    ),
    "first query": Attended({"pattern": regard.causal(), "positions": 0}, distances(range(5)) >= 0),
    "positions": Attended(
        {"pattern": regard.causal(), "positions": POSITIONS}, distances(POSITIONS) >= 0
    ),
    "positions one after the other": Attended(
        {"pattern": regard.causal(), "positions": torch.arange(1, 6)}, distances(range(1, 6)) >= 0
    ),
    "alibi": Attended({"bias": alibi(HEADS), "pattern": regard.causal()}, LAST >= 0, linear),
    "softcap": Attended(
        {"bias": softcap(CAP)}, change=lambda scores: CAP * torch.tanh(scores / CAP)
    ),
    "numbers": Attended(
        {"bias": numbers(1, HEADS, QUERIES, KEYS)},
        change=lambda scores: scores + numbers(1, HEADS, QUERIES, KEYS),
    ),
    "numbers and causal": Attended(
        {"bias": numbers(BATCH, 1, QUERIES, KEYS), "pattern": regard.causal(), "positions": 1},
        distances(range(1, 6)) >= 0,
        lambda scores: scores + numbers(BATCH, 1, QUERIES, KEYS),
    ),
    "numbers and positions": Attended(
        {"bias": numbers(1, 1, QUERIES, KEYS), "positions": torch.arange(2, 7)},
        change=lambda scores: scores + numbers(1, 1, QUERIES, KEYS),
    ),
    "grouped": Attended({}, heads=6, key_heads=2),
    "grouped and causal": Attended({"pattern": regard.causal()}, LAST >= 0, heads=6, key_heads=3),
}


@pytest.mark.parametrize("function", [regard.attend, with_lse])
@pytest.mark.parametrize("name", ATTENDED)
def test_attend(name: str, function: Callable[..., Any]) -> None:
    case = ATTENDED[name]
    given = inputs(heads=case.heads, key_heads=case.key_heads)
    seen = watched(Kernel(function), *given, **case.options)
    assert [(call.kernel, call.problem) for call in seen] == [("attend", "")]
    assert seen[0].check.passed
    expected = softmax_of(
        given.query,
        given.key,
        scale=case.options.get("scale"),
        allowed=case.allowed,
        change=case.change,
    )
    assert_weights(seen, expected)


def test_dropout_in_attend() -> None:
    given = inputs()
    seen = watched(Kernel(regard.attend), *given, dropout=0.3)
    assert str(seen[0].check) == "dropout"
    assert_weights(seen, softmax_of(given.query, given.key))


def assert_equal_matrices(seen: Seen, expected: Sequence[regard.AttentionMatrix]) -> None:
    assert len(seen) == len(expected)
    for call, matrix in zip(seen, expected, strict=True):
        assert call.check.passed
        torch.testing.assert_close(call.matrix.dense(), matrix.dense(), rtol=1e-5, atol=1e-30)


@pytest.mark.parametrize("queries", [QUERIES, KEYS])
def test_a_layer_that_looks_at_a_context(queries: int) -> None:
    layer = MultiHeadAttention(MODEL_DIM, 6, num_key_heads=2, context_dim=5).double()
    x, context = tokens(queries), numbers(BATCH, KEYS, 5)
    pattern = regard.padding([KEYS, 4])
    seen = watched(layer, x, context, pattern=pattern)
    assert (seen[0].heads, seen[0].key_heads) == (6, 2)
    assert_equal_matrices(seen, [layer.matrix(x, context, pattern=pattern)])


WORDS = torch.randint(19, (BATCH, KEYS), generator=torch.Generator().manual_seed(10))


@pytest.mark.parametrize("positions", ["learned", "rotary", "alibi", "relative", None])
def test_text_encoder(positions: str | None) -> None:
    torch.manual_seed(11)
    model = layers(TextEncoder(19, MODEL_DIM, 2, 4, position_encoding=positions)).eval()
    pattern = regard.padding([KEYS, 4])
    seen = watched(model, WORDS, pattern=pattern)
    assert [call.module for call in seen] == ["layers.0.attention", "layers.1.attention"]
    assert_equal_matrices(seen, model.matrices(WORDS, pattern=pattern))


@pytest.mark.parametrize("positions", ["learned", "rotary", "alibi", "relative"])
def test_text_decoder(positions: str) -> None:
    model = layers(
        TextDecoder(19, MODEL_DIM, 2, 4, num_key_heads=2, position_encoding=positions)
    ).eval()
    seen = watched(model, WORDS, starts=[0, 3])
    assert_equal_matrices(seen, model.matrices(WORDS, starts=[0, 3]))


def test_image_encoder() -> None:
    model = layers(ImageEncoder(12, 4, MODEL_DIM, 2, 3)).eval()
    images = numbers(BATCH, 3, 12, 12).float()
    assert_equal_matrices(watched(model, images), model.matrices(images))


@pytest.mark.parametrize("keep", ["tensors", "copies"])
def test_a_bias_that_learns_on_does_not_change_what_was_seen(keep: str) -> None:
    torch.manual_seed(12)
    bias = Relative(HEADS, num_buckets=8, max_distance=16)
    layer = MultiHeadAttention(MODEL_DIM, HEADS, bias=bias).double()
    nn.init.normal_(next(bias.parameters()))
    x = tokens(KEYS)
    before = layer.matrix(x).dense()
    learns = torch.optim.SGD(bias.parameters(), lr=10.0)
    with regard.watch(layer, keep=keep) as seen:
        layer(x).square().sum().backward()
        learns.step()
        layer(x)
    after = layer.matrix(x).dense()
    learns.step()
    assert not torch.allclose(before, after, atol=1e-3)
    for call, expected in zip(seen, (before, after), strict=True):
        torch.testing.assert_close(call.matrix.dense(), expected)


def test_a_bias_made_in_inference_mode() -> None:
    """PyTorch counts no writes to it."""
    with torch.inference_mode():
        bias = Relative(HEADS, num_buckets=8, max_distance=16)
        bias.table = nn.Parameter(torch.randn(8, HEADS))
        layer = MultiHeadAttention(MODEL_DIM, HEADS, bias=bias).double()
        x = tokens(KEYS)
        expected = layer.matrix(x).dense()
        with regard.watch(layer) as seen:
            layer(x)
        bias.table.zero_()
        torch.testing.assert_close(seen[0].matrix.dense(), expected)


# attend as one of the functions that torch lets others override


@pytest.mark.parametrize("function", [regard.attend, regard.attend_with_lse])
def test_a_function_mode_may_stand_in_for_attend(function: Callable[..., Any]) -> None:
    asked: list[Any] = []

    class Instead(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
        ) -> Any:
            if func is function:
                asked.append((args, kwargs))
                return instead
            return func(*args, **(kwargs or {}))

    given = inputs()
    output, lse = torch.zeros_like(given.value[:, :, :QUERIES]), torch.zeros(BATCH, HEADS, QUERIES)
    instead = output if function is regard.attend else (output, lse)
    with Instead():
        assert function(*given, pattern=regard.causal()) is instead
    ((args, options),) = asked
    assert all(one is other for one, other in zip(args, given, strict=True))
    assert options["pattern"] == regard.causal()
    assert function(*given) is not instead


def test_a_kind_of_tensor_may_stand_in_for_attend() -> None:
    asked: list[Any] = []

    class Asked(Tensor):
        @classmethod
        def __torch_function__(
            cls, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
        ) -> Any:
            asked.append(func)
            return super().__torch_function__(func, types, args, kwargs or {})

    given = inputs()
    output = regard.attend(given.query.as_subclass(Asked), given.key, given.value)
    assert regard.attend in asked
    plain = output.as_subclass(Tensor)
    assert torch.equal(plain, regard.attend(*given))


@pytest.mark.parametrize("order", ["inside", "outside"])
def test_somebody_else_may_look_on_too(order: str) -> None:
    asked: list[Any] = []

    class Looks(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
        ) -> Any:
            asked.append(func)
            return func(*args, **(kwargs or {}))

    given, model = inputs(), Kernel(regard.attend)
    if order == "inside":
        with regard.watch(model) as seen, Looks():
            model(*given)
    else:
        with Looks(), regard.watch(model) as seen:
            model(*given)
    assert asked.count(regard.attend) == 1
    assert len(seen) == 1
    assert_weights(seen, softmax_of(given.query, given.key))
