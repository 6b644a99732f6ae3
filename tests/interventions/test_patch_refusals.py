"""Runs that don't fit together, and calls that can't be patched exactly."""

import re
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn

import regard
from regard.capture import Seen
from regard.versions import Overwritten
from tests.capture.generating import writer
from tests.capture.traces import HEADS, WIDTH, inputs, random, stack
from tests.capture.zoo import ZOO, Kind, made, text, tokens
from tests.small import GROUPED

pytestmark = pytest.mark.usefixtures("one_thread", "quiet_transformers")

HEAD = [(1, 1)]


def watched(model: nn.Module, *args: Any, **options: Any) -> Seen:
    with torch.no_grad(), regard.watch(model, values=True) as seen:
        model(*args, **options)
    return seen


@pytest.mark.parametrize(
    ("error", "message", "options"),
    [
        (ValueError, "part must be one of output, query, key, value, weights, got 'keys'",
         {"part": "keys"}),
        (ValueError, "heads must name at least one head", {"heads": []}),
        (ValueError, 'key_heads is for part="key" and part="value", got part=\'output\'',
         {"key_heads": [(0, 0)]}),
        (TypeError, "key_heads must be pairs (layer, head), got 0",
         {"key_heads": [0], "part": "key"}),
        (ValueError, "heads: a head must be at least 0, got (0, -1)", {"heads": [(0, -1)]}),
        (TypeError, "at: must have positions, ranges or pairs of these, got 'a'", {"at": ["a"]}),
        (TypeError, "at: must have positions, ranges or pairs of these, got True", {"at": [True]}),
        (TypeError, "at: must have positions, ranges or pairs of these, got (1, 2, 3)",
         {"at": [(1, 2, 3)]}),
        (ValueError, "at: both spans must have the same length, got (range(0, 2), 5)",
         {"at": [(range(2), 5)]}),
        (ValueError, "at: positions are counted from 0, got -1", {"at": [-1]}),
        (ValueError, "at: position 3 is named twice", {"at": [3, (5, 3)]}),
        (ValueError, "at must name at least one position", {"at": []}),
        (ValueError, 'at: part="key" holds its position', {"at": [(3, 4)], "part": "key"}),
    ],
)  # fmt: skip
def test_arguments(error: type[Exception], message: str, options: dict[str, Any]) -> None:
    model = stack()
    options = {"heads": HEAD, **options}
    with (
        pytest.raises(error, match=f"^{re.escape(message)}"),
        regard.patch(model, watched(model, inputs()), **options),
    ):
        pass


@pytest.mark.parametrize(
    ("message", "now", "options"),
    [
        ("at: 1 has 5 positions from 0 on, and had 6 when it was watched",
         inputs()[:, :5], {}),
        ("at: 1 had 6 positions when it was watched, counted from 0, got position 6",
         inputs(), {"at": [(6, 5)]}),
        ("heads: 1 has 2 heads, counted from 0, got head 2", inputs(), {"heads": [(1, 2)]}),
        ("key_heads: 1 has 2 key heads, counted from 0, got key head 2", inputs(),
         {"heads": [], "key_heads": [(1, 2)], "part": "value"}),
        ("seen: call 1 (1) was of [2, 2] sequences and heads, and this one is of [3, 2]",
         random(3, 6, WIDTH), {}),
    ],
)  # fmt: skip
def test_runs_that_differ(message: str, now: Tensor, options: dict[str, Any]) -> None:
    model = stack()
    seen = watched(model, inputs())
    with (
        pytest.raises(ValueError, match=f"^{re.escape(message)}"),
        regard.patch(model, seen, **{"heads": HEAD, **options}),
    ):
        model(now)


@pytest.mark.parametrize("length", [5, 8])
def test_another_text_later(length: int) -> None:
    model = stack()
    with regard.patch(model, watched(model, inputs()), HEAD):
        model(inputs())
        with pytest.raises(ValueError, match=f"has {length} positions from 0 on, and had 6"):
            model(random(2, length, WIDTH))


def test_numbers_of_calls() -> None:
    model = stack()
    with torch.no_grad(), regard.watch(model, values=True) as twice:
        model(inputs())
        model(inputs(1))
    rule = (
        "^1 made 2 calls when it was watched, and 1 in a run now: seen must have the calls of one"
    )
    with pytest.raises(RuntimeError, match=rule), regard.patch(model, twice, HEAD):
        model(inputs())

    once = watched(model[0], inputs())
    with (
        pytest.raises(ValueError, match=r"^seen: 1 made 0 calls when it was watched, got call 0"),
        regard.patch(model, once, HEAD),
    ):
        model(inputs())


def test_values_and_checks() -> None:
    model = stack()
    with regard.watch(model) as seen:
        model(inputs())
    rule = r"has no values: only watch\(model, values=True\)"
    with pytest.raises(ValueError, match=rule), regard.patch(model, seen, HEAD):
        model(inputs())
    attention = nn.MultiheadAttention(8, 2, dropout=0.5, batch_first=True)
    x = inputs()
    with regard.watch(attention, values=True) as seen:
        attention(x, x, x, need_weights=False)
    rule = r"^seen: call 0 .* was not what its kernel returned: dropout"
    with pytest.raises(ValueError, match=rule), regard.patch(attention.eval(), seen, [("", 0)]):
        attention(x, x, x, need_weights=False)


def test_dropout_now() -> None:
    attention = nn.MultiheadAttention(8, 2, dropout=0.5, batch_first=True).eval()
    x = inputs()
    seen = watched(attention, x, x, x, need_weights=False)
    attention.train()
    with (
        pytest.raises(ValueError, match=r"dropout is on: call model.eval\(\) first"),
        regard.patch(attention, seen, [("", 0)], part="query"),
    ):
        attention(x, x, x, need_weights=False)


def test_positions_that_were_not_computed() -> None:
    model = made(ZOO["Llama"])
    seen = watched(model, tokens())
    rule = r"^at: layers\.1\.self_attn has had no position 22 inside the block"
    with (
        torch.no_grad(),
        pytest.raises(RuntimeError, match=rule),
        regard.patch(model, seen, HEAD, at=[3, 22]),
    ):
        model(tokens(length=20))


def test_a_step_of_a_text() -> None:
    model = writer("Llama")
    with torch.no_grad():
        cache = model(tokens(length=8)).past_key_values
        seen = watched(model, tokens(length=3), past_key_values=cache)
        rule = r"which positions it has, or call 1 .* had, is unknown$"
        with pytest.raises(ValueError, match=rule), regard.patch(model, seen, HEAD):
            model(tokens(length=3))


def test_other_padding() -> None:
    model = made(ZOO["Llama"])
    kind = ZOO["Llama"]
    seen = watched(model, **kind.inputs("left"))
    for part in ("query", "key", "weights"):
        with (
            torch.no_grad(),
            pytest.raises(ValueError, match="its padding is another than when it was watched"),
            regard.patch(model, seen, HEAD, part=part),
        ):
            model(**kind.inputs("none"))
        # The same padding.
        with torch.no_grad(), regard.patch(model, seen, HEAD, part=part):
            model(**kind.inputs("left"))


def test_angles_by_length() -> None:
    options = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}
    config = transformers.LlamaConfig(**GROUPED, rope_parameters=options)
    model = made(Kind(transformers.LlamaModel, config, text))
    seen = watched(model, tokens(length=9))
    message = "the angles of its rotary encoding depend on the length of the text"
    with (
        torch.no_grad(),
        pytest.raises(ValueError, match=message),
        regard.patch(model, seen, HEAD, part="key", at=[2]),
    ):
        model(tokens(length=12))


class WrittenDown(nn.Module):
    """Attention without a kernel."""

    num_heads = HEADS

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.mixed = nn.Linear(WIDTH, 3 * WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.mixed(x).unflatten(-1, (3, HEADS, WIDTH // HEADS)).permute(2, 0, 3, 1, 4)
        query, key, value = parts
        output = (query @ key.mT / (WIDTH // HEADS) ** 0.5).softmax(dim=-1) @ value
        return output.transpose(1, 2).flatten(2)


def test_written_down() -> None:
    """Its queries and keys are not known."""
    model = WrittenDown()
    seen = watched(model, inputs())
    rule = "it down, so that only its output can be patched, not its key"
    with pytest.raises(ValueError, match=rule), regard.patch(model, seen, [("", 0)], part="key"):
        model(inputs(1))
    with torch.no_grad(), regard.watch(model) as seen:
        model(inputs())
    rule = r"has no values: only watch\(model, values=True\)"
    with pytest.raises(ValueError, match=rule), regard.patch(model, seen, [("", 0)]):
        model(inputs(1))


def test_values_that_were_overwritten() -> None:
    model = WrittenDown()
    seen = watched(model, inputs())
    value = seen[0].value
    value.add_(1.0)
    with pytest.raises(Overwritten, match="value was modified in place"):
        _ = seen[0].value
