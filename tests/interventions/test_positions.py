"""Where the queries and keys of a call stand: known, stated, or refused."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from transformers import SegformerConfig, SegformerModel

import regard
from regard.patterns import Pattern, causal, pairs

pytestmark = [
    pytest.mark.usefixtures("one_thread", "quiet_transformers"),
    pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile"),
]

HEADS, DIM = 4, 3
WIDTH = HEADS * DIM
UNKNOWN = (
    r"^the attention of .* can't be altered: which positions its .* queries have .* is unknown"
)


class Attention(nn.Module):
    """Attention by a function of queries, keys and values, [batch, heads, tokens, dim]."""

    num_heads = HEADS

    def __init__(self, attention: Callable[..., Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.attention = attention

    def forward(self, x: Tensor, context: Tensor | None = None, **options: Any) -> Tensor:
        tokens = x if context is None else context
        parts = (self.q(x), self.k(tokens), self.v(tokens))
        query, key, value = (p.unflatten(-1, (HEADS, DIM)).transpose(1, 2) for p in parts)
        return self.o(self.attention(query, key, value, **options).transpose(1, 2).flatten(2))


def tokens(count: int, batch: int = 2, seed: int = 0) -> Tensor:
    return torch.randn(batch, count, WIDTH, generator=torch.Generator().manual_seed(seed))


def with_mask(mask: Tensor) -> Callable[..., Tensor]:
    """Return attention written down, with a mask [queries, keys]."""

    def attention(query: Tensor, key: Tensor, value: Tensor, **options: Any) -> Tensor:
        scores = (query @ key.mT * DIM**-0.5).masked_fill(~mask, -torch.inf)
        return scores.softmax(dim=-1) @ value

    return attention


def but(queries: int, keys: int, *hidden: tuple[int, int], order: int | None = None) -> Tensor:
    """Return a mask, causal with the first query at `order` if given, without some pairs."""
    mask = torch.ones(queries, keys, dtype=torch.bool)
    mask = mask if order is None else mask.tril(order)
    for row, column in hidden:
        mask[row, column] = False
    return mask


def knocked(model: nn.Module, pattern: Pattern, *given: Any, **options: Any) -> Tensor:
    with torch.no_grad(), regard.knock_out(model, pattern, layers=[""], **options):
        return model(*given)


def expected(model: Attention, mask: Tensor, *given: Any) -> Tensor:
    other = Attention(with_mask(mask))
    other.load_state_dict(model.state_dict())
    with torch.no_grad():
        return other(*given)


def assert_same(found: Tensor, truth: Tensor) -> None:
    torch.testing.assert_close(found, truth, rtol=0, atol=1e-5)


def sdpa(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(query, key, value)


def by_hand(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return (query @ key.mT * DIM**-0.5).softmax(dim=-1) @ value


def flex(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return flex_attention(query, key, value)


@pytest.mark.parametrize("attention", [sdpa, by_hand, flex])
@pytest.mark.parametrize(("queries", "keys"), [(7, 5), (5, 7), (1, 6)])
class TestTwoSequences:
    def test_their_order_is_unknown(
        self, attention: Callable[..., Tensor], queries: int, keys: int
    ) -> None:
        model, given = Attention(attention), (tokens(queries), tokens(keys, seed=1))
        with pytest.raises(ValueError, match=UNKNOWN):
            knocked(model, pairs(queries=[0], keys=[1]), *given)

    def test_they_are_stated(
        self, attention: Callable[..., Tensor], queries: int, keys: int
    ) -> None:
        model, given = Attention(attention), (tokens(queries), tokens(keys, seed=1))
        row = min(2, queries - 1)
        truth = expected(model, but(queries, keys, (row, 1)), *given)
        pair = pairs(queries=[row], keys=[1])
        assert_same(knocked(model, pair, *given, cross=True), truth)
        assert_same(knocked(model, pair, *given, positions=0), truth)
        later = pairs(queries=[row + 3], keys=[1])
        assert_same(knocked(model, later, *given, positions=3), truth)
        model.is_cross_attention = True  # pyright: ignore[reportAttributeAccessIssue]
        assert_same(knocked(model, pair, *given), truth)

    @pytest.mark.parametrize(
        "pattern", [pairs(keys=[1]), pairs(queries=slice(0, None), keys=[1]), ~~pairs(keys=[1])]
    )
    def test_where_all_rows_are_masked_alike(
        self, attention: Callable[..., Tensor], queries: int, keys: int, pattern: Pattern
    ) -> None:
        model, given = Attention(attention), (tokens(queries), tokens(keys, seed=1))
        mask = but(queries, keys, *((row, 1) for row in range(queries)))
        assert_same(knocked(model, pattern, *given), expected(model, mask, *given))


def test_a_model_of_transformers_with_fewer_keys() -> None:
    """Segformer reduces its keys, and calls that self-attention."""
    config = SegformerConfig(
        num_encoder_blocks=1,
        depths=[1],
        sr_ratios=[2],
        hidden_sizes=[8],
        patch_sizes=[7],
        strides=[4],
        num_attention_heads=[1],
        mlp_ratios=[2],
    )
    model, picture = SegformerModel(config).eval(), torch.randn(1, 3, 32, 32)
    with (
        torch.no_grad(),
        pytest.raises(ValueError, match=UNKNOWN),
        regard.knock_out(model, pairs(queries=[2], keys=[1])),
    ):
        model(picture)


def top_left(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(query, key, value, is_causal=True)


def by_block_mask(first: int) -> Callable[..., Tensor]:
    def attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        sizes = (None, None, query.shape[2], key.shape[2])
        mask = create_block_mask(lambda b, h, q, k: q + first >= k, *sizes, device="cpu")
        return flex_attention(query, key, value, block_mask=mask)

    return attention


def by_mask(first: int, lowest: float = -torch.inf) -> Callable[..., Tensor]:
    def attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        allowed = but(query.shape[2], key.shape[2], order=first)
        mask = torch.zeros(allowed.shape).masked_fill(~allowed, lowest)
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask)

    return attention


def written_down(first: int) -> Callable[..., Tensor]:
    def attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return with_mask(but(query.shape[2], key.shape[2], order=first))(query, key, value)

    return attention


@pytest.mark.parametrize(
    ("attention", "first"),
    [
        (top_left, 0),
        (by_block_mask(0), 0),
        (by_block_mask(2), 2),
        (by_mask(0), 0),
        (by_mask(2, -1e9), 2),
        (written_down(0), 0),
        (written_down(2), 2),
        (lambda q, k, v: regard.attend(q, k, v, pattern=causal()), 2),
        (lambda q, k, v: regard.attend(q, k, v, positions=1), 1),
    ],
)
def test_a_causal_mask_and_stated_positions_tell_the_order(
    attention: Callable[..., Tensor], first: int
) -> None:
    model, given = Attention(attention), (tokens(4), tokens(6, seed=1))
    with torch.no_grad():
        masked = model(*given)
    is_dense = torch.allclose(masked, expected(model, but(4, 6), *given), atol=1e-5)
    order = None if is_dense else first
    truth = expected(model, but(4, 6, (2, 1), order=order), *given)
    assert not torch.allclose(truth, masked, atol=1e-3)
    assert_same(knocked(model, pairs(queries=[2 + first], keys=[1]), *given), truth)


class TestExtraKeys:
    """Keys that are no tokens shift those that are."""

    @pytest.mark.parametrize("writes", [True, False])
    @pytest.mark.parametrize("mask", [False, True])
    @pytest.mark.parametrize("extra", ["add_zero_attn", "add_bias_kv"])
    def test_of_torchs_own_layer(self, extra: str, mask: bool, writes: bool) -> None:
        torch.manual_seed(0)
        layer = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True, **{extra: True}).eval()
        if layer.bias_k is not None:
            nn.init.normal_(layer.bias_k)
        x, hidden = tokens(6), torch.zeros(6, 6, dtype=torch.bool)
        hidden[2, 4] = mask
        options: dict[str, Any] = {"attn_mask": hidden.clone(), "need_weights": writes}
        knocked_out = hidden.clone()
        knocked_out[3, 1] = True
        with torch.no_grad():
            truth = layer(x, x, x, attn_mask=knocked_out)[0]
            with regard.knock_out(layer, pairs(queries=[3], keys=[1])), regard.watch(layer) as seen:
                found = layer(x, x, x, **options)[0]
        assert_same(found, truth)
        # Its own key is that of a token, too.
        assert (
            seen[0]
            .matrix.offsets(1)
            .itself.allclose(seen[0].matrix.dense().diagonal(dim1=2, dim2=3).sum(dim=2) / 6)
        )

    @pytest.mark.parametrize("order", [None, "causal"])
    @pytest.mark.parametrize("attention", [sdpa, by_hand])
    def test_of_a_memory_of_parameters(
        self, attention: Callable[..., Tensor], order: str | None
    ) -> None:
        memory = nn.Parameter(torch.randn(1, HEADS, 2, DIM))

        def with_memory(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            key, value = (torch.cat([memory.expand(2, -1, -1, -1), x], dim=2) for x in (key, value))
            if order is None:
                return attention(query, key, value)
            return by_mask(2)(query, key, value)

        model, pattern = Attention(with_memory), pairs(queries=[3], keys=[1])
        model.memory = memory
        with pytest.raises(ValueError, match=r"its first keys are parameters or zeros"):
            knocked(model, pattern, tokens(5))
        # Where the first query stands among all keys can be stated.
        found = knocked(model, pairs(queries=[5], keys=[3]), tokens(5), positions=2)
        with torch.no_grad():
            plain = model(tokens(5))
        changed = (found - plain).abs().amax(dim=(0, 2)) > 1e-6
        assert changed.tolist() == [False, False, False, True, False]


@pytest.mark.parametrize("attention", [sdpa, by_hand])
def test_a_parameter_in_place_of_the_first_key(attention: Callable[..., Tensor]) -> None:
    """There are as many keys as queries, and the first is no token."""
    first = nn.Parameter(torch.randn(1, HEADS, 1, DIM))

    def with_first(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        key = torch.cat([first.expand(len(key), -1, -1, -1), key[:, :, 1:]], dim=2)
        return attention(query, key, value)

    model = Attention(with_first)
    model.first = first
    with pytest.raises(ValueError, match=r"its first keys are parameters or zeros"):
        knocked(model, pairs(queries=[3], keys=[1]), tokens(5))


class WithFirstKey(nn.Module):
    """Attention with one more key, the first, which is no token."""

    num_heads = HEADS

    def __init__(self, kind: str, *, is_causal: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.prefix = nn.Parameter(torch.randn(1, 1, WIDTH))
        self.kind, self.is_causal = kind, is_causal

    def forward(self, x: Tensor) -> Tensor:
        more = torch.cat([self.prefix.expand(len(x), -1, -1), x], dim=1)
        given = more if self.kind == "prefix" else x
        parts = (self.q(x), self.k(given), self.v(given))
        query, key, value = (p.unflatten(-1, (HEADS, DIM)).transpose(1, 2) for p in parts)
        if self.kind == "zeros":
            key, value = (F.pad(part, (0, 0, 1, 0)) for part in (key, value))
        scores = query @ key.mT * DIM**-0.5
        if self.kind == "sink":
            scores, value = F.pad(scores, (1, 0), value=0.5), F.pad(value, (0, 0, 1, 0))
        if self.is_causal:
            scores = scores + torch.full(scores.shape[-2:], -torch.inf).triu(2)
        return self.o((scores.softmax(dim=-1) @ value).transpose(1, 2).flatten(2))


@pytest.mark.parametrize("is_causal", [True, False])
@pytest.mark.parametrize("pattern", [pairs(queries=[3], keys=[1]), pairs(keys=[1])], ids=str)
@pytest.mark.parametrize("kind", ["zeros", "sink", "prefix"])
def test_a_first_key_that_is_no_token(kind: str, pattern: Pattern, is_causal: bool) -> None:
    """It looks like a cache of one token."""
    model = WithFirstKey(kind, is_causal=is_causal)
    with pytest.raises(ValueError, match=r"positions"):
        knocked(model, pattern, tokens(6))


@pytest.mark.parametrize(
    "pattern",
    [pairs(queries=[8], keys=[7]), pairs(keys=[2])],
    ids=str,
)
def test_a_cache_that_drops_keys(pattern: Pattern) -> None:
    class Rolling(Attention):
        def forward(self, x: Tensor, past: Any = None, **options: Any) -> Any:
            parts = (self.q(x), self.k(x), self.v(x))
            query, key, value = (p.unflatten(-1, (HEADS, DIM)).transpose(1, 2) for p in parts)
            if past is not None:
                key = torch.cat([past[0], key], dim=2)[:, :, -4:]
                value = torch.cat([past[1], value], dim=2)[:, :, -4:]
            return self.attention(query, key, value), (key, value)

    model, x = Rolling(by_hand), tokens(9)
    rule = r"its cache has dropped or moved keys, so positions of tokens are not those of keys$"
    with torch.no_grad(), regard.knock_out(model, pattern):
        _, past = model(x[:, :3])
        _, past = model(x[:, 3:4], past)
        with pytest.raises(ValueError, match=rule):
            model(x[:, 4:5], past)


@pytest.mark.parametrize("attention", [sdpa, by_hand])
def test_as_many_keys_as_features(attention: Callable[..., Tensor]) -> None:
    """At one step, keys [tokens, features] are as long as wide."""
    model, x, pattern = (
        Cached(lambda q, k, v, allowed: attention(q, k, v)),
        tokens(6),
        pairs(keys=[1]),
    )
    mask = but(6, 6, *((query, 1) for query in range(1, 6)), order=0)
    with torch.no_grad(), regard.knock_out(model, pattern & regard.causal()):
        found = torch.cat([model(x[:, n : n + 1]) for n in range(6)], dim=1)
    assert_same(found, expected(model, mask, x))


class Cached(Attention):
    """Attention with a cache of its own: it grows, or has room from the start."""

    def __init__(self, attention: Callable[..., Tensor], room: int | None = None) -> None:
        super().__init__(self._attend)
        self.inner, self.room = attention, room
        self.reset()

    def reset(self) -> None:
        self.used, self.kept = 0, [torch.zeros(2, HEADS, self.room or 0, DIM) for _ in range(2)]

    def _attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        count = query.shape[2]
        for number, new in enumerate((key, value)):
            if self.room is None:
                self.kept[number] = torch.cat([self.kept[number], new], dim=2)
            else:
                self.kept[number][:, :, self.used : self.used + count] = new
        self.used += count
        allowed = (
            torch.arange(self.kept[0].shape[2])
            < self.used - count + 1 + torch.arange(count)[:, None]
        )
        return self.inner(query, *self.kept, allowed)


def masked_sdpa(query: Tensor, key: Tensor, value: Tensor, allowed: Tensor) -> Tensor:
    mask = None if bool(allowed.all()) else allowed
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask)


def masked_by_hand(query: Tensor, key: Tensor, value: Tensor, allowed: Tensor) -> Tensor:
    scores = query @ key.mT * DIM**-0.5
    return scores.masked_fill(~allowed, -1e9).softmax(dim=-1) @ value


@pytest.mark.parametrize("attention", [masked_sdpa, masked_by_hand])
@pytest.mark.parametrize("room", [None, 9])
class TestCachesOfItsOwn:
    def test_step_by_step(self, attention: Callable[..., Tensor], room: int | None) -> None:
        model, x = Cached(attention, room), tokens(7)
        pattern = pairs(queries=[5], keys=[1, 2]) | pairs(queries=[2], keys=[1])
        with torch.no_grad(), regard.knock_out(model, pattern):
            found = torch.cat([model(x[:, :4]), model(x[:, 4:5]), model(x[:, 5:])], dim=1)
        mask = but(7, 7, (5, 1), (5, 2), (2, 1), order=0)
        assert_same(found, expected(model, mask, x))

    def test_a_cache_that_was_filled_before_is_unknown(
        self, attention: Callable[..., Tensor], room: int | None
    ) -> None:
        model, x, pattern = Cached(attention, room), tokens(7), pairs(queries=[4], keys=[1])
        with torch.no_grad():
            model(x[:, :4])
            with pytest.raises(ValueError, match=UNKNOWN), regard.knock_out(model, pattern):
                model(x[:, 4:5])
            model.reset()
            model(x[:, :4])
            with regard.knock_out(model, pattern, positions=4):
                found = model(x[:, 4:5])
        assert_same(found, expected(model, but(7, 7, (4, 1), order=0), x)[:, 4:5])

    def test_another_text_is_no_continuation(
        self, attention: Callable[..., Tensor], room: int | None
    ) -> None:
        model, x, pattern = Cached(attention, room), tokens(7), pairs(queries=[4], keys=[1])
        with torch.no_grad():
            other = Cached(attention, room)
            other.load_state_dict(model.state_dict())
            other(tokens(4, seed=9))

            def run() -> None:
                model(x[:, :4])
                model.used, model.kept = other.used, other.kept
                model(x[:, 4:5])

            with pytest.raises(ValueError, match=UNKNOWN), regard.knock_out(model, pattern):
                run()


def test_a_cache_among_the_arguments() -> None:
    def attention(query: Tensor, key: Tensor, value: Tensor, past: list[Tensor]) -> Tensor:
        key, value = (torch.cat(both, dim=2) for both in zip(past, (key, value), strict=True))
        return F.scaled_dot_product_attention(query, key, value)

    model, past = Attention(attention), [torch.randn(2, HEADS, 4, DIM) for _ in range(2)]
    found = None
    with torch.no_grad(), regard.knock_out(model, pairs(queries=[4], keys=[1])):
        found = model(tokens(1), past=past)
    query, key, value = (
        layer(tokens(1)).unflatten(-1, (HEADS, DIM)).transpose(1, 2)
        for layer in (model.q, model.k, model.v)
    )
    key, value = torch.cat([past[0], key], dim=2), torch.cat([past[1], value], dim=2)
    mask = but(1, 5, (0, 1))
    truth = model.o(with_mask(mask)(query, key, value).transpose(1, 2).flatten(2))
    assert_same(found, truth)


class TestWhichPairsAreLeft:
    def test_low_scores_are_no_masks(self) -> None:
        def low(query: Tensor, key: Tensor, value: Tensor, hidden: Tensor | None = None) -> Tensor:
            scores = query @ key.mT - 9500
            if hidden is not None:
                scores = scores.masked_fill(hidden, -torch.inf)
            return scores.softmax(dim=-1) @ value

        model, hidden = Attention(low), torch.zeros(6, 6, dtype=torch.bool)
        hidden[3, 1:] = True
        found = knocked(model, pairs(queries=[3], keys=slice(1, None)), tokens(6))
        with torch.no_grad():
            assert_same(found, model(tokens(6), hidden=hidden))

    @pytest.mark.parametrize("slope", [5000.0, 9000.0, 20000.0])
    def test_steep_biases_are_no_masks(self, slope: float) -> None:
        distance = (torch.arange(6)[:, None] - torch.arange(6)).abs()

        def steep(
            query: Tensor, key: Tensor, value: Tensor, hidden: Tensor | None = None
        ) -> Tensor:
            scores = query @ key.mT - slope * distance
            if hidden is not None:
                scores = scores.masked_fill(hidden, -torch.inf)
            return scores.softmax(dim=-1) @ value

        model, hidden = Attention(steep), torch.zeros(6, 6, dtype=torch.bool)
        hidden[5, 3:] = True
        rule = r"which pairs it masks is unknown$"
        with pytest.raises(ValueError, match=rule):
            knocked(model, pairs(queries=[5], keys=[3, 4, 5]), tokens(6))
        # Where a pair that is left is no candidate for a mask, nothing has to be known.
        near = torch.zeros(6, 6, dtype=torch.bool)
        near[5, 0] = True
        with torch.no_grad():
            truth = model(tokens(6), hidden=near)
        assert_same(knocked(model, pairs(queries=[5], keys=[0]), tokens(6)), truth)

    def test_pairs_are_masked_after_the_model_has_selected_keys(self) -> None:
        """The top keys are those of all keys, as in a model that is not altered."""

        def top(query: Tensor, key: Tensor, value: Tensor, hidden: Tensor | None = None) -> Tensor:
            scores = query @ key.mT * DIM**-0.5
            least = scores.topk(3, dim=-1).values[..., -1:]
            scores = scores.masked_fill(scores < least, -torch.inf)
            if hidden is not None:
                scores = scores.masked_fill(hidden, -torch.inf)
            return scores.softmax(dim=-1).nan_to_num(0.0) @ value

        model, hidden = Attention(top), torch.zeros(6, 6, dtype=torch.bool)
        hidden[3, [1, 2]] = True
        with torch.no_grad():
            truth = model(tokens(6), hidden=hidden)
        assert_same(knocked(model, pairs(queries=[3], keys=[1, 2]), tokens(6)), truth)


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        (
            {"positions": "last"},
            TypeError,
            r"^positions must be the position of the first query, got",
        ),
        (
            {"positions": -1},
            ValueError,
            r"^positions: the first query must be at 0 or later, got -1$",
        ),
        ({"positions": 1, "cross": True}, ValueError, r"^positions must be None with cross=True"),
    ],
)
def test_arguments(options: dict[str, Any], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        knocked(Attention(sdpa), pairs(keys=[1]), tokens(3), **options)
