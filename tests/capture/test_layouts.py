"""Which axes of hand-written attention are which: told by values, or unknown."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import regard
from regard.internals import without_torch_function

pytestmark = pytest.mark.usefixtures("one_thread")

DIM, COUNT = 4, 6


class Attention(nn.Module):
    """Attention in a layout of [batch, heads, tokens, dim], and back.

    Attributes:
        weights: of the latest call, [batch, heads, queries, keys].
        ablated: a head that returns zeros.
    """

    def __init__(
        self,
        to: Callable[[Tensor], Tensor],
        back: Callable[[Tensor], Tensor],
        heads: int = 4,
        *,
        named: bool = True,
        kernel: bool = False,
        normed: str = "",
    ) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.qkv, self.o = nn.Linear(16, 3 * heads * DIM), nn.Linear(heads * DIM, 16)
        self.to_layout, self.back, self.heads, self.kernel = to, back, heads, kernel
        norm = nn.LayerNorm(DIM)
        self.norms = [norm if "key" in normed else None, norm if "value" in normed else None]
        self.ablated: int | None = None
        if named:
            self.num_heads = heads

    def forward(self, x: Tensor) -> Tensor:
        split = self.qkv(x).unflatten(-1, (3, self.heads, DIM)).permute(2, 0, 3, 1, 4)
        query, *others = split
        key, value = (
            x if norm is None else norm(x) for x, norm in zip(others, self.norms, strict=True)
        )
        with without_torch_function():
            self.weights = (query @ key.mT / 2).softmax(dim=-1).detach()
        query, key, value = map(self.to_layout, (query, key, value))
        if self.kernel:
            output = F.scaled_dot_product_attention(query, key, value, scale=0.5)
        else:
            output = (query @ key.mT / 2).softmax(dim=-1) @ value
        output = self.back(output)
        if self.ablated is not None:
            output = output.clone()
            output[:, self.ablated] = 0.0
        return self.o(output.transpose(1, 2).flatten(2))

    def without_head(self, x: Tensor) -> Tensor:
        """Return the output with zeros for head 1."""
        self.ablated = 1
        output = self(x)
        self.ablated = None
        return output


def turn(tensor: Tensor) -> Tensor:
    return tensor.transpose(0, 1)


LAYOUTS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[..., Tensor]]] = {
    "batch first": (lambda x: x, lambda x, batch, heads: x),
    "heads first": (turn, lambda x, batch, heads: turn(x)),
    "flat": (lambda x: x.flatten(0, 1), lambda x, batch, heads: x.unflatten(0, (batch, heads))),
    "flat, heads first": (
        lambda x: turn(x).flatten(0, 1),
        lambda x, batch, heads: turn(x.unflatten(0, (heads, batch))),
    ),
}


def made(layout: str, batch: int, heads: int = 4, **options: bool) -> Attention:
    to, back = LAYOUTS[layout]
    return Attention(to, lambda x: back(x, batch, heads), heads, **options).eval()


def tokens(batch: int) -> Tensor:
    return torch.randn(batch, COUNT, 16, generator=torch.Generator().manual_seed(batch))


@pytest.mark.parametrize("batch", [1, 2, 3, 4])
@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_values_tell_sequences_from_heads(layout: str, named: bool, batch: int) -> None:
    model, x = made(layout, batch, named=named), tokens(batch)
    with torch.no_grad():
        truth = model.without_head(x)
        with regard.watch(model) as seen:
            model(x)
        (call,) = seen
        if not call.heads_known:
            # A flat axis without a number of heads.
            assert layout.startswith("flat")
            assert not named
            rule = r"its heads can't be told from its batch$"
            with pytest.raises(ValueError, match=rule), regard.ablate(model, [("", 1)]):
                model(x)
            return
        torch.testing.assert_close(call.matrix.dense(), model.weights)
        with regard.ablate(model, [("", 1)]):
            torch.testing.assert_close(model(x), truth)


@pytest.mark.parametrize("layout", ["heads first", "flat, heads first", "flat"])
def test_what_values_do_not_tell_is_unknown(layout: str) -> None:
    """What went through a norm are no numbers of a linear layer any more."""
    model, x = made(layout, 4, normed="key value"), tokens(4)
    with regard.watch(model) as seen:
        model(x)
    assert not seen[0].heads_known
    with (
        pytest.raises(ValueError, match=r"its heads can't be told from its batch$"),
        regard.ablate(model, [("", 1)]),
    ):
        model(x)


@pytest.mark.parametrize("normed", ["key", "value"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_values_or_keys_suffice(layout: str, normed: str) -> None:
    model, x = made(layout, 4, normed=normed), tokens(4)
    with torch.no_grad():
        truth = model.without_head(x)
        with regard.ablate(model, [("", 1)]):
            torch.testing.assert_close(model(x), truth)
        if normed == "key":
            # Pairs are masked before values are known.
            return
        pattern = regard.pairs(queries=[3], keys=[1])
        with regard.knock_out(model, pattern, heads=[1]), regard.watch(model) as seen:
            model(x)
    changed = (seen[0].matrix.dense() == 0).nonzero().tolist()
    assert changed == [[sequence, 1, 3, 1] for sequence in range(4)]


class Inner(nn.Module):
    """A module of queries, keys and values, which knows neither sequences nor heads."""

    def __init__(self, kernel: bool) -> None:
        super().__init__()
        self.kernel = kernel

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        if self.kernel:
            return F.scaled_dot_product_attention(query, key, value, scale=0.5)
        return (query @ key.mT / 2).softmax(dim=-1) @ value


class Outer(Attention):
    """Attention whose softmax is in another module."""

    def __init__(self, layout: str, batch: int, *, named: bool, kernel: bool) -> None:
        to, back = LAYOUTS[layout]
        super().__init__(to, lambda x: back(x, batch, 4), 4, named=named)
        self.inner = Inner(kernel)

    def forward(self, x: Tensor) -> Tensor:
        split = self.qkv(x).unflatten(-1, (3, self.heads, DIM)).permute(2, 0, 3, 1, 4)
        with without_torch_function():
            self.weights = (split[0] @ split[1].mT / 2).softmax(dim=-1).detach()
        output = self.back(self.inner(*map(self.to_layout, split)))
        if self.ablated is not None:
            output = output.clone()
            output[:, self.ablated] = 0.0
        return self.o(output.transpose(1, 2).flatten(2))


@pytest.mark.pairwise
@pytest.mark.parametrize("kernel", [False, True])
@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("batch", [1, 3, 4])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_inner_module_knows_what_its_caller_knows(
    layout: str, batch: int, named: bool, kernel: bool
) -> None:
    if kernel and layout.startswith("flat"):
        pytest.skip("a kernel takes four axes")
    model, x = Outer(layout, batch, named=named, kernel=kernel).eval(), tokens(batch)
    with torch.no_grad():
        truth = model.without_head(x)
        with regard.watch(model) as seen:
            # The second time, it is known which modules have attention.
            model(x)
            model(x)
        for call in seen:
            if call.heads_known:
                torch.testing.assert_close(call.matrix.dense(), model.weights)
        if all(call.heads_known for call in seen):
            with regard.ablate(model, [("inner", 1)]):
                torch.testing.assert_close(model(x), truth)
        else:
            # A flat axis without a number of heads, or a kernel that got heads first.
            assert not named or kernel
            assert layout != "batch first"
            rule = r"heads can't be told from its batch$"
            with pytest.raises(ValueError, match=rule), regard.ablate(model, [("inner", 1)]):
                model(x)


@pytest.mark.parametrize("count", [4, 5])
def test_tokens_of_another_text_are_no_batch(count: int) -> None:
    """Of two texts without a batch, one has as many tokens as there are heads."""

    class Unbatched(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q, self.k, self.v = (nn.Linear(16, 16) for _ in range(3))

        def forward(self, x: Tensor, context: Tensor) -> Tensor:
            parts = (self.q(x), self.k(context), self.v(context))
            query, key, value = (part.unflatten(-1, (4, 4)).transpose(0, 1) for part in parts)
            return (query @ key.mT).softmax(dim=-1) @ value

    with regard.watch(model := Unbatched()) as seen:
        model(torch.randn(7, 16), torch.randn(count, 16))
    assert not seen[0].heads_known


def test_one_sequence_of_as_many_tokens_as_heads() -> None:
    model = made("heads first", 1)
    with regard.watch(model) as seen:
        model(torch.randn(1, 4, 16))
    rule = r"two axes of its weights have 4 entries, either may be that of queries"
    assert seen[0].problem == rule


def test_sequences_that_are_alike_tell_nothing() -> None:
    model = made("flat", 2)
    with regard.watch(model) as seen:
        model(tokens(1).expand(2, -1, -1))
    assert not seen[0].heads_known


@pytest.mark.parametrize("batch", [2, 3, 4])
def test_a_kernel_that_got_heads_first(batch: int) -> None:
    model, x = made("heads first", batch, kernel=True), tokens(batch)
    with regard.watch(model) as seen:
        model(x)
    seen.verify()
    assert not seen[0].heads_known
    rule = r"its 4 heads can't be told from its batch$"
    with pytest.raises(ValueError, match=rule), regard.ablate(model, [("", 1)]):
        model(x)
    # All heads alike, so that it does not matter.
    other = made("batch first", batch, kernel=True)
    other.load_state_dict(model.state_dict())
    knocked = regard.pairs(queries=[3], keys=[1])
    with torch.no_grad(), regard.knock_out(model, knocked), regard.knock_out(other, knocked):
        torch.testing.assert_close(model(x), other(x))


def test_one_head_at_a_time() -> None:
    """As many sequences as heads, in calls of one head each."""

    class HeadByHead(Attention):
        def forward(self, x: Tensor) -> Tensor:
            split = self.qkv(x).unflatten(-1, (3, 4, DIM)).permute(2, 3, 0, 1, 4)
            parts = [(q @ k.mT / 2).softmax(dim=-1) @ v for q, k, v in zip(*split, strict=True)]
            return self.o(torch.cat(parts, dim=-1))

    model, x = HeadByHead(turn, turn).eval(), tokens(4)
    with regard.watch(model) as seen:
        model(x)
    assert [call.heads_known for call in seen] == [False] * 4
    with (
        pytest.raises(ValueError, match=r"its heads can't be told from its batch$"),
        regard.ablate(model, [("", 0)]),
    ):
        model(x)


class Shared(nn.Module):
    """Multi-query attention, whose queries come before the heads or behind them."""

    num_heads = 4

    def __init__(self, *, queries_first: bool, einsum: bool, normed: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.q, self.kv, self.o = nn.Linear(16, 16), nn.Linear(16, 2 * DIM), nn.Linear(16, 16)
        self.norm = nn.LayerNorm(DIM) if normed else nn.Identity()
        self.queries_first, self.einsum, self.ablated = queries_first, einsum, False

    def forward(self, x: Tensor) -> Tensor:
        key, value = self.kv(x).chunk(2, dim=-1)
        query = self.norm(self.q(x).unflatten(-1, (4, DIM)))
        letters = "bqh" if self.queries_first else "bhq"
        if not self.queries_first:
            query = query.transpose(1, 2)
        if self.einsum:
            weights = torch.einsum(f"{letters}d,bkd->{letters}k", query, key).div(2).softmax(-1)
            output = torch.einsum(f"{letters}k,bkd->{letters}d", weights, value)
        else:
            weights = (query @ key.mT[:, None] / 2).softmax(dim=-1)
            output = weights @ value[:, None]
        if self.queries_first:
            weights = weights.transpose(1, 2)
        else:
            output = output.transpose(1, 2)
        self.weights = weights.detach()
        if self.ablated:
            output = output.clone()
            output[:, :, 1] = 0.0
        return self.o(output.flatten(2))


@pytest.mark.parametrize("einsum", [True, False])
@pytest.mark.parametrize("queries_first", [True, False])
@pytest.mark.parametrize("count", [5, 4])
def test_as_many_tokens_as_heads(count: int, queries_first: bool, einsum: bool) -> None:
    model, x = Shared(queries_first=queries_first, einsum=einsum).eval(), torch.randn(2, count, 16)
    with torch.no_grad():
        model.ablated = True
        truth = model(x)
        model.ablated = False
        with regard.watch(model) as seen:
            model(x)
        torch.testing.assert_close(seen[0].matrix.dense(), model.weights)
        with regard.ablate(model, [("", 1)]):
            torch.testing.assert_close(model(x), truth)


@pytest.mark.parametrize("queries_first", [True, False])
def test_as_many_tokens_as_heads_that_nothing_tells_apart(queries_first: bool) -> None:
    model = Shared(queries_first=queries_first, einsum=False, normed=True).eval()
    rule = r"two axes of its weights have 4 entries, either may be that of queries$"
    with regard.watch(model) as seen:
        model(torch.randn(2, 4, 16))
    assert seen[0].problem.endswith("either may be that of queries")
    with pytest.raises(ValueError, match=rule), regard.ablate(model, [("", 1)]):
        model(torch.randn(2, 4, 16))


def test_adapters_add_to_what_a_layer_returns() -> None:
    class Adapted(nn.Module):
        def __init__(self, layer: nn.Linear) -> None:
            super().__init__()
            self.layer, self.more = layer, nn.Linear(layer.in_features, layer.out_features)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x) + self.more(x)

    model, x = made("flat", 3), tokens(3)
    model.qkv = Adapted(model.qkv)  # pyright: ignore[reportAttributeAccessIssue]
    with regard.watch(model) as seen:
        model(x)
    assert seen[0].heads_known
    torch.testing.assert_close(seen[0].matrix.dense(), model.weights)
