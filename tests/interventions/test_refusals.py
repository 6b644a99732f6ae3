"""What can't be altered exactly is refused, with the reason."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import regard
from regard.patterns import padding, pairs
from tests.capture.traces import inputs, stack
from tests.capture.zoo import ZOO, made

pytestmark = pytest.mark.usefixtures("one_thread", "quiet_transformers")

KEYS = pairs(keys=[1, 3])


class Mixed(nn.Module):
    """Makes queries, keys and values, [3, batch, heads, sequence, dim]."""

    num_heads = 2

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.mixed = nn.Linear(8, 24)

    def parts(self, x: Tensor) -> Tensor:
        return self.mixed(x).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)


class InChunks(Mixed):
    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.parts(x)
        chunks = query.split(3, dim=2)
        return torch.cat([F.scaled_dot_product_attention(q, key, value) for q in chunks], dim=2)


class HeadsInBatch(Mixed):
    def forward(self, x: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(*self.parts(x).flatten(1, 2))


class HeadByHead(Mixed):
    def forward(self, x: Tensor) -> Tensor:
        parts = self.parts(x).unbind(2)
        return torch.stack([F.scaled_dot_product_attention(*part) for part in parts], dim=1)


class Twice(Mixed):
    """Multiplies its weights with values two times."""

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.parts(x)
        weights = (query @ key.mT).softmax(dim=-1)
        return weights @ value + weights @ value.square()


class Exponentials(Mixed):
    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.parts(x)
        weights = (query @ key.mT).exp()
        return weights / weights.sum(dim=-1, keepdim=True) @ value


class Unfollowed(Mixed):
    """Takes a softmax of scores, and does with it what isn't followed."""

    def forward(self, x: Tensor) -> Tensor:
        query, key, _ = self.parts(x)
        return (query @ key.mT).softmax(dim=-1).logsumexp(dim=-1)


class Dropping(Mixed):
    def forward(self, x: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(*self.parts(x), dropout_p=0.5)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (InChunks, r"it calls attention several times, for parts of its sequence"),
        (HeadByHead, r"it calls attention several times, for parts of its sequence"),
        (Exponentials, r"its weights are no softmax of scores of queries and keys"),
        (Unfollowed, r"a softmax of 2 × 2 × 6 × 6 was not followed to a product with values"),
        (Dropping, r"dropout is on: call model.eval\(\) first"),
    ],
)
def test_pairs(kind: Any, reason: str) -> None:
    rule = rf"^the attention of the model can't be altered: {reason}$"
    model = kind()
    with pytest.raises(ValueError, match=rule), regard.knock_out(model, KEYS):
        model(inputs())


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (HeadsInBatch, r"its 2 heads can't be told from its batch"),
        (Twice, r"its weights are multiplied with values more than once"),
        (Unfollowed, r"a softmax of 2 × 2 × 6 × 6 was not followed to a product with values"),
    ],
)
def test_heads(kind: Any, reason: str) -> None:
    model = kind()
    rule = rf"^the attention of the model can't be altered: {reason}$"
    with pytest.raises(ValueError, match=rule), regard.ablate(model, [("", 0)]):
        model(inputs())


def test_heads_in_the_batch_are_told_apart_only_where_that_matters() -> None:
    model = HeadsInBatch()
    with regard.knock_out(model, KEYS):
        output = model(inputs())
    query, key, value = model.parts(inputs()).flatten(1, 2)
    scores = query @ key.mT / 2
    scores[..., [1, 3]] = -torch.inf
    torch.testing.assert_close(output, scores.softmax(dim=-1) @ value, rtol=0, atol=1e-5)
    rule = (
        r"^the attention of the model can't be altered: its 2 heads can't be told from its batch$"
    )
    with pytest.raises(ValueError, match=rule), regard.knock_out(model, KEYS, heads=[1]):
        model(inputs())


def test_weights_that_are_multiplied_twice_can_lose_pairs() -> None:
    model = Twice()
    with regard.knock_out(model, KEYS):
        found = model(inputs())
    query, key, value = model.parts(inputs())
    scores = query @ key.mT
    scores[..., [1, 3]] = -torch.inf
    expected = scores.softmax(dim=-1) @ (value + value.square())
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("heads", "kind", "message"),
    [
        ([(2, 0)], ValueError, r"^heads: 2 names no layer of the model; some are \['0', '1'"),
        ([("a", 0)], ValueError, r"^heads: 'a' names no layer of the model; some are "),
        ([(0, 2)], ValueError, r"^heads: 0 has 2 heads, counted from 0, got head 2$"),
        ([(0, -1)], ValueError, r"^heads: a head must be at least 0, got \(0, -1\)$"),
        ([(0, True)], TypeError, r"^heads must be pairs \(layer, head\), got \(0, True\)$"),
        ([0], TypeError, r"^heads must be pairs \(layer, head\), got 0$"),
        ([(0.5, 1)], TypeError, r"^heads: a layer must be its number or the path of a module, got"),
    ],
)
def test_heads_that_are_not_there(heads: Any, kind: type[Exception], message: str) -> None:
    model = stack()
    with pytest.raises(kind, match=message), regard.ablate(model, heads):
        model(inputs())


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ({"pattern": "causal"}, TypeError, r"^pattern must be a Pattern such as .*, got str$"),
        ({"pattern": KEYS, "layers": [7]}, ValueError, r"^layers: 7 names no layer of the model"),
        ({"pattern": KEYS, "heads": [2]}, ValueError, r"^heads: 0 has 2 heads, .* got head 2$"),
        ({"pattern": KEYS, "heads": [-1]}, ValueError, r"^heads: a head must be at least 0, got"),
        ({"pattern": KEYS, "heads": ["a"]}, TypeError, r"^heads must be whole numbers, got 'a'$"),
        ({"pattern": padding([1, 2, 3])}, ValueError, r"^padding: .* got 3 for a batch of 2$"),
    ],
)
def test_arguments(arguments: dict[str, Any], kind: type[Exception], message: str) -> None:
    model = stack()
    with pytest.raises(kind, match=message), regard.knock_out(model, **arguments):
        model(inputs())


@pytest.mark.parametrize("how", ["exact", "integrated"])
def test_a_target_that_changes_by_itself(how: Any) -> None:
    model = nn.Sequential(stack(), nn.Dropout(0.5))
    rule = r"^run must return the same number each time, got .*: call model.eval\(\) first$"
    with pytest.raises(ValueError, match=rule):
        regard.interventions.heads(model, lambda: model(inputs()).sum(), how=how)


def test_by() -> None:
    rule = r"^by must be \"zero\" or \"mean\", got 'none'; for another run, use patch$"
    with (
        pytest.raises(ValueError, match=rule),
        regard.ablate(stack(), [(0, 0)], by="none"),  # pyright: ignore[reportArgumentType]
    ):
        pass


ORDER = torch.ones(5, 5, dtype=torch.bool).tril()
LEFT = torch.arange(5) >= 2
PADDED = ORDER & LEFT | torch.eye(5, dtype=torch.bool)


class Masked(nn.Module):
    """Attention with a boolean mask, by PyTorch's kernel or written down."""

    num_heads = 2

    def __init__(self, allowed: Tensor, *, kernel: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.qkv, self.allowed, self.kernel = nn.Linear(8, 24), allowed, kernel

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.qkv(x).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4)
        if self.kernel:
            return F.scaled_dot_product_attention(query, key, value, attn_mask=self.allowed)
        scores = (query @ key.mT / 2).masked_fill(~self.allowed, -torch.inf)
        return scores.softmax(dim=-1) @ value


@pytest.mark.parametrize("kernel", [False, True])
@pytest.mark.parametrize(
    "allowed",
    [
        # The last token is no padding, though no query may attend to it.
        ORDER.tril(-1) | torch.eye(5, dtype=torch.bool)[0],
        # Padding that attends to itself, so that no row is empty.
        PADDED[None, None].expand(2, 1, -1, -1),
        (LEFT | torch.eye(5, dtype=torch.bool))[None, None].expand(2, 1, -1, -1),
    ],
    ids=["without itself", "padding to itself", "both directions"],
)
def test_masks_that_do_not_tell_padding(allowed: Tensor, kernel: bool) -> None:
    model, x = Masked(allowed, kernel=kernel), torch.randn(2, 5, 8)
    with pytest.raises(ValueError, match="padding"), regard.ablate(model, [("", 1)], by="mean"):
        model(x)
    with regard.ablate(model, [("", 1)]):
        assert (model(x)[:, 1] == 0).all()


@pytest.mark.parametrize("kernel", [False, True])
@pytest.mark.parametrize("allowed", [ORDER, ORDER & LEFT, LEFT.expand(5, -1)], ids=str)
def test_masks_that_tell_padding(allowed: Tensor, kernel: bool) -> None:
    allowed = allowed[None, None].expand(2, 1, -1, -1)
    model, x = Masked(allowed, kernel=kernel), torch.randn(2, 5, 8)
    real = allowed[0, 0].any(dim=0)
    with torch.no_grad(), regard.ablate(model, [("", 1)], by="mean"):
        found = model(x)[:, 1, real]
    with torch.no_grad():
        expected = model(x)[:, 1, real].mean(dim=1, keepdim=True)
    torch.testing.assert_close(found, expected.expand_as(found))


def test_a_layer_that_did_not_run() -> None:
    model = stack()
    with (
        pytest.raises(RuntimeError, match=r"^layer 1 has not called attention inside the block"),
        regard.ablate(model, [(0, 0), (1, 0)]),
    ):
        model[0](inputs())
    with (
        pytest.raises(RuntimeError, match=r"^no layer has called attention inside the block"),
        regard.knock_out(model, KEYS),
    ):
        pass


def test_nothing_named_is_nothing_done() -> None:
    model = stack()
    expected = model(inputs())
    with regard.ablate(model, []), regard.knock_out(model, KEYS, layers=[]):
        assert torch.equal(model(inputs()), expected)


def test_layers_of_encoders_and_decoders() -> None:
    kind = ZOO["BART"]
    model = made(kind)
    rule = r"^layer 1 is decoder.layers.1.self_attn and encoder.layers.1.self_attn: name one of"
    with pytest.raises(ValueError, match=rule), regard.ablate(model, [(1, 0)]):
        model(**kind.inputs("none"))
    rule = r"^layers: decoder.layers.0.encoder_attn is cross-attention, so name the layers"
    with pytest.raises(ValueError, match=rule), regard.knock_out(model, KEYS):
        model(**kind.inputs("none"))
    with torch.no_grad(), regard.ablate(model, [("decoder.layers.*.encoder_attn", 0)]):
        model(**kind.inputs("none"))


def test_models() -> None:
    with pytest.raises(TypeError, match=r"^model must be a torch.nn.Module, got str; load it"):
        regard.ablate("gpt2", [(0, 0)]).__enter__()  # pyright: ignore[reportArgumentType]
