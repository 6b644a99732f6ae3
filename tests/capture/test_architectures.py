"""Every head of every call equals what the same model admits to under eager attention.

The first table of docs/reference/watched-models.md is made of what these tests find (the other one
by `python -m zoo`). To write it anew:

    WRITE_DOCS=1 python -m pytest tests/capture/test_architectures.py
"""

import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import regard
import regard.hf
from regard.capture import Seen
from regard.matrix.weights import Weights
from regard.models import ImageEncoder, TextDecoder, TextEncoder
from tests.capture.zoo import LENGTH, ZOO, admitted, made, picture, real, tokens
from tests.installed import needs_asking
from tests.models.cases import lively

pytestmark = pytest.mark.usefixtures("one_thread", "quiet_transformers")

DOCS = Path(__file__).parents[2] / "docs" / "reference" / "watched-models.md"
SIDES = ("none", "right", "left")
WITHIN = 1e-5


@dataclass(frozen=True)
class Found:
    """What was seen of a model.

    Attributes:
        calls: how many calls there were.
        kernels: what computed them.
        known_by: "queries and keys", or "its weights".
        worst: the largest difference of a weight.
    """

    calls: int
    kernels: str
    known_by: str
    worst: float


def compared(seen: Seen, expected: dict[str, list[Tensor]], inputs: dict[str, Tensor]) -> Found:
    """Hold what was seen against weights, by part, rows of padding excluded."""
    seen.verify()
    worst, count = 0.0, 0
    for part, layers in expected.items():
        where, _, looks = part.partition(" ")
        calls = [x for x in seen if x.module.startswith(where) and x.kind == (looks or x.kind)]
        assert len(calls) == len(layers)
        mask = inputs.get("decoder_attention_mask" if where == "decoder" else "attention_mask")
        for call, weights in zip(calls, layers, strict=True):
            found = call.matrix.dense()
            assert found.shape == weights.shape
            gaps = (found - weights).abs().amax(dim=(1, 3))
            if mask is not None and where != "vision_model":
                gaps = gaps[mask.bool()]
            assert not gaps.isnan().any()
            worst, count = max(worst, gaps.max().item()), count + 1
    assert count == len(seen)
    own = all(isinstance(call.source, Weights) for call in seen)
    kernels = ", ".join(sorted({call.kernel for call in seen}))
    return Found(len(seen), kernels, "its weights" if own else "queries and keys", worst)


@cache
def watched(name: str, side: str, attention: str | None = None) -> Found:
    kind = ZOO[name]
    model = made(kind, attention)
    inputs = kind.inputs(side)
    with torch.no_grad():
        before = model(**inputs)[0]
        with regard.watch(model) as seen:
            after = model(**inputs)[0]
    assert torch.equal(before, after)
    return compared(seen, admitted(kind, side), inputs)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("name", ZOO)
def test_with_its_own_attention(name: str, side: str) -> None:
    assert watched(name, side).worst <= WITHIN


@pytest.mark.parametrize("name", [name for name, kind in ZOO.items() if kind.asks])
def test_with_eager_attention(name: str) -> None:
    needs_asking(ZOO[name].model)
    found = watched(name, "left", "eager")
    assert found.worst <= WITHIN
    # No n × n numbers are kept, although they are there to be had.
    assert found.known_by == "queries and keys"


@pytest.mark.parametrize("name", ["BERT", "Llama", "Gemma 2", "gpt-oss", "T5"])
def test_with_our_attention(name: str) -> None:
    needs_asking(ZOO[name].model)
    regard.hf.register()
    found = watched(name, "left", "regard")
    assert found.worst <= WITHIN
    assert found.kernels == "regard"


def test_softcaps_with_sdpa() -> None:
    """transformers refuses the two together; versions that did not have left the softcap out."""
    kind = ZOO["Gemma 2"]
    if not kind.model._supports_sdpa:
        with pytest.raises(ValueError, match="scaled_dot_product_attention"):
            made(kind, "sdpa")
        return
    model = made(kind, "sdpa")
    with torch.no_grad(), regard.watch(model) as seen:
        model(**kind.inputs("none"))
    seen.verify()
    assert all(call.kernel == "sdpa" and call.source.call.bias is None for call in seen)


def test_weights_are_far_from_uniform() -> None:
    """Or else a mask, a bias or a head in the wrong place would be forgiven."""
    for kind in ZOO.values():
        for layers in admitted(kind, "none").values():
            weights = torch.stack([layer.max(dim=-1).values.mean() for layer in layers])
            assert weights.max() > 2 / LENGTH


def vectors() -> Tensor:
    return torch.randn(3, LENGTH, 24, generator=torch.Generator().manual_seed(1)) * 2


def admitted_by_modules(model: nn.Module, *inputs: Tensor, **options: Any) -> list[Tensor]:
    """Return the weights of all `nn.MultiheadAttention`: each is called again with its input."""
    found: list[Tensor] = []

    def ask(module: nn.Module, arguments: Any, named: dict[str, Any], output: Any) -> None:
        again = {**named, "need_weights": True, "average_attn_weights": False}
        handle = hooks.pop(module)
        handle.remove()
        found.append(module(*arguments, **again)[1])

    attention = [x for x in model.modules() if isinstance(x, nn.MultiheadAttention)]
    hooks = {x: x.register_forward_hook(ask, with_kwargs=True) for x in attention}
    # The fast path, which has no modules, is not taken where gradients are.
    model(*inputs, **options)
    return [weights.detach() for weights in found]


@cache
def torch_encoder(side: str) -> Found:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(24, 4, 36, batch_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    mask = real(side)
    hidden = {"src_key_padding_mask": mask == 0} if side != "none" else {}
    expected = admitted_by_modules(model, vectors(), **hidden)
    with torch.no_grad(), regard.watch(model) as seen:
        model(vectors(), **hidden)
    return compared(seen, {"layers": expected}, {"attention_mask": mask})


@cache
def torch_decoder(side: str) -> Found:
    torch.manual_seed(0)
    layer = nn.TransformerDecoderLayer(24, 4, 36, batch_first=True)
    model = nn.TransformerDecoder(layer, 2).eval()
    target, mask = vectors()[:, :11], real(side)
    order = nn.Transformer.generate_square_subsequent_mask(11)
    hidden: dict[str, Tensor] = {"tgt_mask": order}
    if side != "none":
        hidden["memory_key_padding_mask"] = mask == 0
    expected = admitted_by_modules(model, target, vectors(), **hidden)
    with torch.no_grad(), regard.watch(model) as seen:
        model(target, vectors(), **hidden)
    parts = {" self": expected[0::2], " cross": expected[1::2]}
    return compared(seen, parts, {})


@cache
def torch_attention(side: str, need_weights: bool) -> Found:
    torch.manual_seed(0)
    model = nn.MultiheadAttention(24, 4, batch_first=True).eval()
    mask = real(side)
    hidden = {"key_padding_mask": mask == 0} if side != "none" else {}
    x = vectors()
    expected = model(x, x, x, **hidden, average_attn_weights=False)[1].detach()
    with torch.no_grad(), regard.watch(model) as seen:
        model(x, x, x, **hidden, need_weights=need_weights)
    return compared(seen, {"": [expected]}, {"attention_mask": mask})


@cache
def our_models(side: str) -> Found:
    sizes: dict[str, Any] = {"model_dim": 24, "num_layers": 2, "num_heads": 4}
    encoder = lively(TextEncoder(vocabulary_size=50, **sizes)).eval()
    decoder = lively(TextDecoder(vocabulary_size=50, position_encoding="rotary", **sizes)).eval()
    images = lively(ImageEncoder(image_size=24, patch_size=4, **sizes)).eval()
    ids, mask = tokens(), real(side)
    firsts, lengths = mask.argmax(dim=1), mask.sum(dim=1)
    hidden = {} if side == "none" else {"pattern": regard.padding(lengths, starts=firsts)}
    found: list[Found] = []
    for model, inputs, options in (
        (encoder, ids, hidden),
        (decoder, ids, {"starts": firsts} if side == "left" else {}),
        (images, picture(side)["pixel_values"], {}),
    ):
        expected = [matrix.dense() for matrix in model.matrices(inputs, **options)]
        with torch.no_grad(), regard.watch(model) as seen:
            model(inputs, **options)
        rows = {"attention_mask": mask} if model is not images and side != "none" else {}
        found.append(compared(seen, {"": expected}, rows))
    worst = max(one.worst for one in found)
    return Found(sum(one.calls for one in found), found[0].kernels, found[0].known_by, worst)


OTHERS = {
    "torch.nn.TransformerEncoder": torch_encoder,
    "torch.nn.TransformerDecoder": torch_decoder,
    "torch.nn.MultiheadAttention(need_weights=False)": lambda side: torch_attention(side, False),
    "torch.nn.MultiheadAttention(need_weights=True)": lambda side: torch_attention(side, True),
    "regard.models": our_models,
}


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("name", OTHERS)
def test_without_transformers(name: str, side: str) -> None:
    assert OTHERS[name](side).worst <= WITHIN


def table() -> str:
    """Return what the tests above have found, as a table."""
    rows = ["| model | its attention | known by | what is special |", "|---|---|---|---|"]
    for name, kind in ZOO.items():
        found = watched(name, "left")
        rows.append(f"| {name} | {found.kernels} | {found.known_by} | {kind.note} |")
    for name, run in OTHERS.items():
        found = run("left")
        rows.append(f"| `{name}` | {found.kernels} | {found.known_by} | |")
    return "\n".join(rows) + "\n"


def test_the_table_in_the_docs() -> None:
    for kind in ZOO.values():
        if kind.asks:
            needs_asking(kind.model)
    head, mark, rest = DOCS.read_text(encoding="utf-8").partition("| model |")
    rest, title, behind = rest.partition("\n## ")
    if os.environ.get("WRITE_DOCS"):
        DOCS.write_text(head + table() + title + behind, encoding="utf-8")
        return
    assert mark + rest == table(), "write it anew with WRITE_DOCS=1"
