"""What `regard.watch` promises: which calls it sees, what it keeps of them, and what it says."""

import copy
import gc
import itertools
import re
import weakref
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import sdpa_mask

import regard
from regard.matrix import Entropy, Pool
from regard.watch import Seen
from tests.attention.cases import DEVICES
from tests.watch.zoo import LENGTH, ZOO, made

pytestmark = pytest.mark.usefixtures("one_thread", "quiet_transformers")

HEADS, DIM, NUM_LAYERS = 2, 4, 12
WIDTH = HEADS * DIM
HALF = (torch.bfloat16, torch.float16)
RED, HTML_RED = "\033[31m", "color:#"


class Attention(nn.Module):
    """Attention that remembers what it gave to the kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.projections = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.given: tuple[Tensor, ...] = ()

    def forward(self, x: Tensor, other: Tensor | None = None) -> Tensor:
        sources = (x, *(x if other is None else other for _ in range(2)))
        parts = [project(one) for project, one in zip(self.projections, sources, strict=True)]
        self.given = tuple(part.unflatten(-1, (HEADS, DIM)).transpose(1, 2) for part in parts)
        return F.scaled_dot_product_attention(*self.given).transpose(1, 2).flatten(2)


class Fused(nn.Module):
    """Attention whose queries, keys and values lie in one piece of memory."""

    def __init__(self) -> None:
        super().__init__()
        self.mixed = nn.Linear(WIDTH, 3 * WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.mixed(x).unflatten(-1, (3, HEADS, DIM)).permute(2, 0, 3, 1, 4)
        return F.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.self_attn, self.cross_attn = Attention(), Attention()

    def forward(self, x: Tensor) -> Tensor:
        return self.cross_attn(self.self_attn(x), torch.cat([x, x], dim=1))


class Model(nn.Module):
    def __init__(self, num_layers: int = NUM_LAYERS) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Block() for _ in range(num_layers))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


class Twice(nn.Module):
    """Calls what it has inside as often as it is told."""

    def __init__(self, inner: nn.Module, times: int) -> None:
        super().__init__()
        self.inner, self.times = inner, times

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(self.times):
            x = self.inner(x)
        return x


class Kernel(nn.Module):
    """Calls a function, which is its attention, as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *arguments: Any) -> Any:
        return self.function(*arguments)


def random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def inputs(length: int = 5) -> Tensor:
    return random(3, length, WIDTH)


def weights(query: Tensor, key: Tensor) -> Tensor:
    """Compute attention weights by the book."""
    scores = query.double() @ key.double().mT / query.shape[-1] ** 0.5
    return scores.softmax(dim=-1).float()


def same(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)


@pytest.fixture(scope="module")
def model() -> Model:
    torch.manual_seed(0)
    return Model().eval()


@pytest.fixture(scope="module")
def seen(model: Model) -> Seen:
    with regard.watch(model) as seen, torch.no_grad():
        model(inputs())
    return seen


@pytest.fixture
def register(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[..., Any]], str]:
    """Register an attention with transformers for the time of a test, and return its name."""

    def register(function: Callable[..., Any]) -> str:
        monkeypatch.setitem(AttentionInterface._global_mapping, "own", function)
        monkeypatch.setitem(AttentionMaskInterface._global_mapping, "own", sdpa_mask)
        return "own"

    return register


def rows(seen: Any) -> list[list[str]]:
    """Return the cells of the table, the header first."""
    return [re.split(r"\s{2,}", line.strip()) for line in repr(seen).splitlines()]


class TestWhichCall:
    def test_by_number(self, seen: Any) -> None:
        assert len(seen) == 2 * NUM_LAYERS
        assert [call.index for call in seen] == list(range(2 * NUM_LAYERS))
        assert seen[5].module == "layers.2.cross_attn"
        assert seen[-1] is seen[2 * NUM_LAYERS - 1]
        assert seen[-2 * NUM_LAYERS] is seen[0]

    def test_by_slice(self, seen: Any) -> None:
        some = seen[1::2]
        assert isinstance(some, Seen)
        assert list(some) == [call for call in seen if call.module.endswith("cross_attn")]
        assert some["layers.3.cross_attn"] is seen["layers.3.cross_attn"]
        assert len(seen[100:]) == 0

    def test_by_module(self, seen: Any) -> None:
        for number in range(NUM_LAYERS):
            assert seen[f"layers.{number}.self_attn"] is seen[2 * number]

    @pytest.mark.parametrize("number", [2 * NUM_LAYERS, -2 * NUM_LAYERS - 1])
    def test_no_such_number(self, seen: Any, number: int) -> None:
        with pytest.raises(IndexError, match=rf"^24 calls were seen, got number {number}$"):
            seen[number]

    def test_no_such_module(self, seen: Any) -> None:
        rule = r"no call of 'layers.0' was seen; calls were made by layers.0.self_attn, .*, …"
        with pytest.raises(KeyError, match=rule):
            seen["layers.0"]
        with pytest.raises(KeyError, match=r"calls were made by layers.0.self_attn\""):
            seen[:1]["layers.0"]

    @pytest.mark.parametrize(("times", "numbers"), [(2, "0, 1"), (7, "0, 1, 2, …")])
    def test_a_module_with_several_calls(self, times: int, numbers: str) -> None:
        repeated = Twice(Attention(), times)
        with regard.watch(repeated) as seen:
            repeated(inputs())
        rule = rf"inner made {times} calls \({numbers}\): choose one by its number, or .*stitched"
        with pytest.raises(KeyError, match=rule):
            seen["inner"]


class TestTable:
    def test_a_row_per_call(self, seen: Any) -> None:
        header, *body = rows(seen)
        names = ["module", "looks at", "heads", "queries × keys", "pattern", "kernel", "check"]
        assert header == names
        assert len(body) == 2 * NUM_LAYERS
        for number, (index, module, looks, heads, sizes, pattern, kernel, check) in enumerate(body):
            cross = number % 2
            assert index == str(number)
            assert module == f"layers.{number // 2}.{'cross' if cross else 'self'}_attn"
            assert looks == ("cross" if cross else "self")
            assert heads == str(HEADS)
            assert sizes == ("5 × 10" if cross else "5 × 5")
            assert (pattern, kernel) == ("everyone()", "sdpa")
            assert re.fullmatch(r"✓ \de[+-]\d\d", check)

    def test_grouped_heads_and_patterns(self) -> None:
        grouped = Kernel(
            lambda q, k: regard.attend(
                q, k, k, pattern=regard.causal(), bias=regard.positions.alibi(9)
            )
        )
        with regard.watch(grouped) as seen:
            grouped(random(1, 9, 1234, 2), random(1, 3, 1234, 2, seed=1))
        (row,) = rows(seen)[1:]
        assert row[:-1] == [
            "0", "(the model)", "self", "9 / 3", "1,234 × 1,234", "causal() + bias", "attend",
        ]  # fmt: skip

    def test_columns_stand_below_each_other(self, seen: Any) -> None:
        header, *lines = repr(seen).splitlines()
        for line in lines:
            for name in ("module", "looks at", "pattern", "kernel", "check"):
                start = header.index(name)
                assert line[start - 2 : start] == "  "
                assert line[start] != " "

    @pytest.mark.parametrize("times", [40, 57])
    def test_many_calls_are_shortened(self, times: int) -> None:
        repeated = Twice(Attention(), times)
        with regard.watch(repeated) as seen, torch.no_grad():
            repeated(inputs())
        body = rows(seen)[1:]
        numbers = [int(row[0]) for row in body if row[0] != "⋮"]
        assert len(numbers) == 40
        assert [numbers[0], numbers[-1]] == [0, times - 1]
        assert ("17 more" in repr(seen)) == ("17 more" in seen._repr_html_()) == (times == 57)
        assert len(seen) == times

    def test_html_escapes_modules(self) -> None:
        model = nn.Sequential()
        model.add_module("<b>bold & co</b>", Attention())
        with regard.watch(model) as seen:
            model(inputs())
        shown = seen._repr_html_()
        assert "<b>" not in shown
        assert "&lt;b&gt;bold &amp; co&lt;/b&gt;" in shown

    @pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
    def test_html_escapes_patterns(self) -> None:
        blocks = create_block_mask(lambda b, h, q, k: q >= k, None, None, 16, 16, device="cpu")
        flexible = Kernel(lambda x: flex_attention(x, x, x, block_mask=blocks))
        with regard.watch(flexible) as seen:
            flexible(random(1, 2, 16, 4))
        assert "block_mask(<lambda>)" in repr(seen)
        shown = seen._repr_html_()
        assert "<lambda>" not in shown
        assert "block_mask(&lt;lambda&gt;)" in shown

    def test_html_has_a_cell_for_each_of_the_text(self, seen: Any) -> None:
        shown = seen._repr_html_()
        for row in rows(seen)[1:]:
            assert all(f">{cell}</td>" in shown for cell in row)
        assert shown.count("<tr") == 1 + len(seen)
        assert HTML_RED not in shown

    @pytest.mark.parametrize("terminal", [True, False])
    @pytest.mark.parametrize("colours", [True, False])
    def test_failing_calls_are_red(
        self,
        terminal: bool,
        colours: bool,
        register: Callable[..., str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        wrong = made(ZOO["Llama"], register(of_one_layer(scaled_differently, layer=1)))
        with regard.watch(wrong) as seen, torch.no_grad():
            wrong(**ZOO["Llama"].inputs("none"))
        monkeypatch.setattr("sys.stdout.isatty", lambda: terminal)
        monkeypatch.delenv("NO_COLOR", raising=False)
        if not colours:
            monkeypatch.setenv("NO_COLOR", "1")
        _, right_row, wrong_row = repr(seen).splitlines()
        assert (RED in wrong_row) == (terminal and colours)
        assert RED not in right_row
        right_row, wrong_row = seen._repr_html_().split("<tr")[-2:]
        assert HTML_RED in wrong_row
        assert HTML_RED not in right_row


WHERE: dict[str, tuple[Any, Callable[[int, str], bool]]] = {
    "path": ("layers.1.self_attn", lambda layer, part: layer == 1 and part == "self_attn"),
    "all below": ("layers.1", lambda layer, part: layer == 1),
    "wildcard": ("*.cross_attn", lambda layer, part: part == "cross_attn"),
    "wildcard of numbers": ("layers.1?", lambda layer, part: layer >= 10),
    "list": (
        ["layers.0", "layers.11.self_attn"],
        lambda layer, part: layer == 0 or (layer == 11 and part == "self_attn"),
    ),
    "number": (3, lambda layer, part: layer == 3),
    "numbers": (iter([3, 10]), lambda layer, part: layer in (3, 10)),
    "numbers and paths": ([3, "*.1.self_attn"], lambda layer, part: (layer, part) in
        [(3, "self_attn"), (3, "cross_attn"), (1, "self_attn")]),
    "rule": (
        lambda name, module: isinstance(module, Attention) and name.endswith("7.self_attn"),
        lambda layer, part: layer == 7 and part == "self_attn",
    ),
}  # fmt: skip


class TestWhere:
    @pytest.mark.parametrize("name", WHERE)
    def test_modules_are_chosen(self, name: str, model: Model) -> None:
        where, expected = WHERE[name]
        with regard.watch(model, where=where) as seen, torch.no_grad():
            model(inputs())
        parts = ("self_attn", "cross_attn")
        assert [call.module for call in seen] == [
            f"layers.{layer}.{part}"
            for layer in range(NUM_LAYERS)
            for part in parts
            if expected(layer, part)
        ]
        assert [call.index for call in seen] == list(range(len(seen)))

    @pytest.mark.parametrize("where", ["layer.1", "self_attn", 12, [], [12, "x"], lambda *_: False])
    def test_nothing_is_named(self, where: Any, model: Model) -> None:
        rule = r"^where=.* names no module of the model; some are \['layers', 'layers.0', "
        with pytest.raises(ValueError, match=rule), regard.watch(model, where=where):
            pytest.fail("the block was entered")


class TestKeep:
    @pytest.mark.parametrize("keep", ["tensors", "copies"])
    def test_references_or_copies(self, keep: str) -> None:
        attention = Attention()
        with regard.watch(attention, keep=keep) as seen:
            attention(inputs())
        (call,) = seen
        query, key, _ = attention.given
        assert query.requires_grad
        for found, given in ((call.query, query), (call.key, key)):
            assert torch.equal(found, given)
            assert (found.data_ptr() == given.data_ptr()) == (keep == "tensors")
            assert not found.requires_grad
        same(call.matrix.dense(), weights(query.detach(), key.detach()))

    def test_views_of_larger_memory_are_copied(self) -> None:
        fused = Fused()
        with regard.watch(fused) as seen:
            fused(inputs(7))
        (call,) = seen
        kept = [call.query.untyped_storage(), call.key.untyped_storage()]
        one = 3 * HEADS * 7 * DIM * torch.float32.itemsize
        assert len({storage.data_ptr() for storage in kept}) == 2
        assert sum(storage.nbytes() for storage in kept) == 2 * one

    @pytest.mark.parametrize("name", ["Llama", "gpt-oss", "T5", "BLOOM"])
    def test_reductions(self, name: str) -> None:
        kind = ZOO[name]
        model = made(kind)
        reductions = [Entropy(), Pool(8)]
        with torch.no_grad():
            with regard.watch(model) as kept:
                model(**kind.inputs("left"))
            with regard.watch(model, keep=reductions) as reduced:
                model(**kind.inputs("left"))
        assert len(kept) == len(reduced) > 1
        for call, other in zip(kept, reduced, strict=True):
            assert (call.module, call.check.passed) == (other.module, other.check.passed)
            assert call.results == ()
            entropy, pool = other.results
            same(entropy.nats, call.matrix.entropy().nats)
            same(pool.cells, call.matrix.pool(8).cells)

    def test_a_single_reduction(self) -> None:
        attention = Attention()
        with regard.watch(attention, keep=Entropy()) as seen:
            attention(inputs())
        (found,) = seen[0].results
        query, key, _ = attention.given
        a = weights(query.detach(), key.detach())
        same(found.nats, -(a * a.log()).sum(dim=-1))

    @pytest.mark.parametrize("keep", ["tensors", [Entropy()]])
    def test_reductions_let_tensors_go(self, keep: Any) -> None:
        memory: list[weakref.ref[np.ndarray]] = []

        def attend(x: Tensor) -> Tensor:
            # A tensor keeps the array that it was made of for as long as its memory is in use.
            arrays = [x.numpy().copy() for _ in range(2)]
            memory.extend(weakref.ref(array) for array in arrays)
            query, key = (torch.from_numpy(array) for array in arrays)
            return F.scaled_dot_product_attention(query, key, x)

        kernel = Kernel(attend)
        with regard.watch(kernel, keep=keep) as seen:
            kernel(random(1, 2, 6, 4))
            gc.collect()
            alive = [one() is not None for one in memory]
        assert alive == [keep == "tensors"] * 2
        assert len(seen) == 1

    @pytest.mark.parametrize("part", ["matrix", "query", "key"])
    def test_what_was_let_go_is_asked_for(self, part: str) -> None:
        attention = Attention()
        with regard.watch(attention, keep=[Entropy()]) as seen:
            attention(inputs())
        rule = (
            r"^call 0 \(the model\) has let its queries and keys go: watch the model with "
            r'keep="tensors" to have them, or look at its results$'
        )
        with pytest.raises(ValueError, match=rule):
            getattr(seen[0], part)

    @pytest.mark.usefixtures("unchecked")
    @pytest.mark.parametrize(
        ("keep", "kind", "rule"),
        [
            ("tensor", ValueError, r'"tensors", "copies" or a list of reductions, got \'tensor\''),
            (3, TypeError, r"a list of reductions such as Entropy\(\), got 3$"),
            (None, TypeError, r"a list of reductions such as Entropy\(\), got None$"),
            ([Entropy(), "tensors"], TypeError, r"such as Entropy\(\), got 'tensors'$"),
            ([Entropy], TypeError, r"such as Entropy\(\), got <class"),
            (Entropy, TypeError, r"such as Entropy\(\), got <class"),
        ],
    )
    def test_refusals(self, keep: Any, kind: type[Exception], rule: str) -> None:
        with pytest.raises(kind, match=rule), regard.watch(Attention(), keep=keep):
            pytest.fail("the block was entered")

    @pytest.mark.parametrize("device", DEVICES)
    def test_offload(self, device: str) -> None:
        kind = ZOO["gpt-oss"]
        model = made(kind).to(device)
        given = {name: value.to(device) for name, value in kind.inputs("left").items()}
        with torch.no_grad():
            with regard.watch(model) as there:
                model(**given)
            with regard.watch(model, offload="cpu") as here:
                model(**given)
        for call, other in zip(there, here, strict=True):
            assert other.query.device.type == other.key.device.type == "cpu"
            assert other.check.passed
            same(other.matrix.dense(), call.matrix.dense().cpu())

    def test_offload_to_another_device(self) -> None:
        attention = Attention()
        with regard.watch(attention, offload="meta") as seen:
            attention(inputs())
        (call,) = seen
        assert call.query.device.type == call.key.device.type == "meta"
        assert call.check.passed


def plain(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Any, **options: Any
) -> tuple[Tensor, Tensor | None]:
    """Compute attention as transformers wants it."""
    groups = query.shape[1] // key.shape[1]
    key, value = (x.repeat_interleave(groups, dim=1) for x in (key, value))
    scores = query @ key.mT * options["scaling"]
    if mask is None:
        looks_back = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
        mask = looks_back if module.is_causal else torch.ones_like(looks_back)
    # Rows of padding may look at nothing.
    weights = scores.masked_fill(~mask, -torch.inf).softmax(dim=-1).nan_to_num(0.0)
    return (weights @ value).transpose(1, 2), None


def scaled_differently(*arguments: Any, **options: Any) -> Any:
    return plain(*arguments, **{**options, "scaling": 1.5 * options["scaling"]})


def without_mask(module: Any, query: Tensor, key: Tensor, value: Tensor, *_: Any, **o: Any) -> Any:
    everyone = torch.ones(query.shape[2], key.shape[2], dtype=torch.bool)
    return plain(module, query, key, value, everyone, **o)


def one_row_wrong(*arguments: Any, **options: Any) -> Any:
    """Get the last row of one head wrong; it is always compared."""
    output, weights = plain(*arguments, **options)
    output = output.clone()
    output[-1, -1, 2] *= 1.01
    return output, weights


def of_one_layer(wrong: Callable[..., Any], layer: int) -> Callable[..., Any]:
    def attention(module: Any, *arguments: Any, **options: Any) -> Any:
        return (wrong if module.layer_idx == layer else plain)(module, *arguments, **options)

    return attention


class AlikeValues(nn.Module):
    """Calls transformers' attention as its models do, with values that are all alike."""

    is_causal = True

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def forward(self, x: Tensor) -> Tensor:
        found = AttentionInterface().get_interface(self.name, plain)
        return found(self, x, x, torch.full_like(x, -7.0), None, scaling=1.0)[0]


class TestCheck:
    @pytest.mark.parametrize("padding", ["none", "left", "right"])
    @pytest.mark.parametrize("wrong", [scaled_differently, without_mask, one_row_wrong])
    def test_a_broken_kernel_is_found(
        self, wrong: Callable[..., Any], padding: str, register: Callable[..., str]
    ) -> None:
        model = made(ZOO["Llama"], register(of_one_layer(wrong, layer=1)))
        with regard.watch(model) as seen, torch.no_grad():
            model(**ZOO["Llama"].inputs(padding))
        assert [call.check.passed for call in seen] == [True, False]
        right, broken = rows(seen)[1:]
        assert right[-1].startswith("✓")
        assert re.fullmatch(r"✗ \de[+-]\d\d", broken[-1])
        rule = (
            r"^call 1 \(layers.1.self_attn\), computed by own, returned something else than A @ V"
        )
        with pytest.raises(RuntimeError, match=rule):
            seen.verify()

    def test_how_many_are_wrong(self, register: Callable[..., str]) -> None:
        model = made(ZOO["Llama"], register(scaled_differently))
        with regard.watch(model) as seen, torch.no_grad():
            for _ in range(3):
                model(**ZOO["Llama"].inputs("none"))
        with pytest.raises(RuntimeError, match=r"call 0 .*; 5 other calls are wrong too$"):
            seen.verify()

    def test_the_size_of_a_difference(self, register: Callable[..., str]) -> None:
        def a_quarter_more(*arguments: Any, **options: Any) -> Any:
            return 1.25 * plain(*arguments, **options)[0], None

        model = AlikeValues(register(a_quarter_more))
        with regard.watch(model) as seen:
            model(random(2, 3, 9, 4))
        # Of values that are all alike, each row is one of them, whatever the weights.
        assert seen[0].check.gap == pytest.approx(0.25, rel=1e-5)

    def test_weights_are_believed_where_the_kernel_is_not(
        self, register: Callable[..., str]
    ) -> None:
        written: list[Tensor] = []

        def attention(
            module: Any, query: Tensor, key: Tensor, value: Tensor, *_: Any, **o: Any
        ) -> Any:
            key, value = (x.repeat_interleave(2, dim=1) for x in (key, value))
            # No softmax at all.
            weights = (query @ key.mT).square()
            weights = weights / weights.sum(dim=-1, keepdim=True)
            written.append(weights)
            return (weights @ value).transpose(1, 2), weights

        model = made(ZOO["Llama"], register(attention))
        with regard.watch(model) as seen, torch.no_grad():
            model(**ZOO["Llama"].inputs("none"))
        assert [row[-1] for row in rows(seen)[1:]] == ["own weights"] * 2
        assert [call.check.passed for call in seen] == [None] * 2
        for call, expected in zip(seen, written, strict=True):
            assert torch.equal(call.matrix.dense(), expected)
            assert (call.heads, call.queries, call.keys) == (4, LENGTH, LENGTH)
            with pytest.raises(ValueError, match=r"is known by its weights alone"):
                _ = call.query
        seen.verify()

    def test_not_asked_for(self, register: Callable[..., str]) -> None:
        model = made(ZOO["Llama"], register(scaled_differently))
        with regard.watch(model, check=False) as seen, torch.no_grad():
            model(**ZOO["Llama"].inputs("none"))
        assert [row[-1] for row in rows(seen)[1:]] == ["—"] * 2
        assert [call.check.passed for call in seen] == [None] * 2
        seen.verify()

    def test_dropout_is_not_compared(self) -> None:
        kernel = Kernel(lambda x: F.scaled_dot_product_attention(x, x, x, dropout_p=0.5))
        with regard.watch(kernel) as seen:
            kernel(random(1, 2, 9, 4))
        assert rows(seen)[1][-1] == "dropout"
        seen.verify()

    @pytest.mark.parametrize("padding", ["none", "left", "right"])
    @pytest.mark.parametrize(
        ("name", "dtype"),
        [
            *itertools.product(["Llama", "BERT", "Gemma 2", "gpt-oss"], HALF),
            *itertools.product(["Llama", "BERT"], [torch.float32, torch.float64]),
            *itertools.product(["Gemma 2", "gpt-oss"], [torch.float32]),
        ],
    )
    def test_what_is_right_passes(self, name: str, dtype: torch.dtype, padding: str) -> None:
        kind = copy.deepcopy(ZOO[name])
        # Its experts want rows of half numbers to be a multiple of 16 bytes.
        kind.config.intermediate_size = 32
        model = made(kind).to(dtype)
        with regard.watch(model) as seen, torch.no_grad():
            model(**kind.inputs(padding))
        assert [(call.check.passed, call.dtype) for call in seen] == [(True, dtype)] * 2
        seen.verify()

    def test_nan_is_not_hidden_by_weights(self) -> None:
        model = made(ZOO["Llama"], "eager")
        nn.init.constant_(model.layers[1].self_attn.v_proj.weight, torch.nan)
        with regard.watch(model) as seen, torch.no_grad():
            model(**ZOO["Llama"].inputs("none"))
        with pytest.raises(RuntimeError, match=r"^call 1 .* returned NaN"):
            seen.verify()

    @pytest.mark.parametrize("dtype", HALF)
    def test_autocast(self, dtype: torch.dtype) -> None:
        kind = ZOO["Llama"]
        model = made(kind)
        with (
            regard.watch(model) as seen,
            regard.watch(model, keep=[Entropy()]) as reduced,
            torch.no_grad(),
            torch.autocast("cpu", dtype=dtype),
        ):
            model(**kind.inputs("none"))
        seen.verify()
        for call, other in zip(seen, reduced, strict=True):
            same(other.results[0].nats, call.matrix.entropy().nats)

    def test_autocast_of_what_the_kernel_is_given(self) -> None:
        kernel = Kernel(F.scaled_dot_product_attention)
        query, key, value = (random(2, 3, 40, 16, seed=seed) for seed in range(3))
        with regard.watch(kernel) as seen, torch.autocast("cpu", dtype=torch.bfloat16):
            output = kernel(8 * query, key, value)
        assert output.dtype == torch.bfloat16
        seen.verify()
        again = seen[0].matrix.dense() @ value.bfloat16().float()
        rounding = 4 * torch.finfo(torch.bfloat16).eps * value.abs().max().item()
        torch.testing.assert_close(output.float(), again, rtol=0, atol=rounding)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype stage")
class TestNotUnderstood:
    def not_understood(self, seen: Any, module: str, reason: str) -> None:
        (call,) = seen
        assert (call.module, bool(call.problem)) == (module, True)
        assert rows(seen)[1][-1].startswith("✗ ")
        assert re.search(reason, rows(seen)[1][-1])
        for part in ("matrix", "query", "key"):
            with pytest.raises(ValueError, match=r"was not understood: "):
                getattr(call, part)
        with pytest.raises(RuntimeError, match=r"^call 0 \(.*was not understood: "):
            seen.verify()
        assert HTML_RED in seen._repr_html_()

    @pytest.mark.parametrize("keep", ["tensors", [Entropy()]])
    def test_nested_tensors(self, keep: Any) -> None:
        def attend(*parts: Tensor) -> Tensor:
            nested = torch.nested.nested_tensor(list(parts), layout=torch.jagged)
            nested = nested.unflatten(-1, (HEADS, DIM)).transpose(1, 2)
            return F.scaled_dot_product_attention(nested, nested, nested)

        kernel = Kernel(attend)
        parts = [random(3, WIDTH), random(5, WIDTH, seed=1)]
        expected = kernel(*parts).unbind()
        with regard.watch(kernel, keep=keep) as seen:
            found = kernel(*parts).unbind()
        assert len(found) == 2
        assert all(torch.equal(*pair) for pair in zip(found, expected, strict=True))
        self.not_understood(seen, "", "nested tensors can't be looked into")

    @pytest.mark.usefixtures("unchecked")
    @pytest.mark.parametrize(
        "shape",
        [
            lambda output: output.transpose(1, 2),
            lambda output: output.flatten(2),
            lambda output: output[..., :5],
            lambda output: output[:, 1:],
        ],
    )
    def test_outputs_of_a_wrong_shape(
        self, shape: Callable[[Tensor], Tensor], register: Callable[..., str]
    ) -> None:
        def attention(*arguments: Any, **options: Any) -> Any:
            return shape(plain(*arguments, **options)[0]), None

        model = AlikeValues(register(attention))
        x = random(2, 3, 7, 6)
        expected = model(x)
        with regard.watch(model) as seen:
            found = model(x)
        assert torch.equal(found, expected)
        assert seen[0].problem or seen[0].check.passed is False
        self.not_understood(seen, "", r"output|shape|size|index|dimension")

    def test_errors_have_one_line(self) -> None:
        class Odd(nn.Module):
            is_causal = True

            def forward(self, x: Tensor) -> Any:
                found = AttentionInterface().get_interface("sdpa", plain)
                return found(self, x, x, x, None, scaling=1.0, cache=object())

        model = Odd()
        with regard.watch(model) as seen:
            model(random(1, 2, 3, 4))
        self.not_understood(seen, "", "a paged cache can't be looked into")
        assert len(repr(seen).splitlines()) == 2

    def test_others_are_understood(self) -> None:
        parts = nn.ModuleList([Attention(), Kernel(lambda x: x), Attention()])

        def attend(x: Tensor) -> Tensor:
            nested = torch.nested.nested_tensor([x[0], x[1]], layout=torch.jagged)
            nested = nested.unflatten(-1, (HEADS, DIM)).transpose(1, 2)
            F.scaled_dot_product_attention(nested, nested, nested)
            return x

        model = nn.Sequential(parts[0], Kernel(attend), parts[2])
        with regard.watch(model) as seen:
            model(inputs())
        assert [bool(call.problem) for call in seen] == [False, True, False]
        assert seen["2"].matrix.shape == (3, HEADS, 5, 5)
        with pytest.raises(RuntimeError, match=r"^call 1 \(1\), .*can't be looked into$"):
            seen.verify()


class TestNothing:
    def test_no_attention(self) -> None:
        linear = nn.Linear(2, 2)
        with pytest.raises(RuntimeError) as raised, regard.watch(linear) as seen:
            linear(torch.ones(1, 2))
        message = str(raised.value)
        assert message.startswith("no attention was seen. Likely reasons:\n- ")
        assert message.count("\n- ") >= 4
        assert 'set_attn_implementation("sdpa")' in message
        assert len(seen) == 0

    def test_nothing_was_called(self) -> None:
        rule = r"not called inside the block"
        with pytest.raises(RuntimeError, match=rule), regard.watch(Attention()):
            pass

    def test_errors_of_the_block_come_through(self) -> None:
        with pytest.raises(ZeroDivisionError), regard.watch(Attention()):
            _ = 1 / 0

    @pytest.mark.usefixtures("unchecked")
    def test_no_module(self) -> None:
        rule = r"^model must be a torch.nn.Module, got int$"
        with pytest.raises(TypeError, match=rule), regard.watch(3):
            pass
        pipeline = SimpleNamespace(model=Attention())
        rule = r"^model must be a torch.nn.Module, got SimpleNamespace; watch its \.model$"
        with pytest.raises(TypeError, match=rule), regard.watch(pipeline):
            pass


class TestWhose:
    def test_calls_of_other_models_are_not_seen(self) -> None:
        mine, other = Attention(), Attention()
        llama, stranger = made(ZOO["Llama"]), made(ZOO["Llama"])
        holder = nn.ModuleList([mine, llama])
        x = random(1, 1, 3, 4)
        with regard.watch(holder) as seen, torch.no_grad():
            other(inputs())
            stranger(**ZOO["Llama"].inputs("none"))
            F.scaled_dot_product_attention(x, x, x)
            mine(inputs())
            other(inputs())
            llama(**ZOO["Llama"].inputs("none"))
            stranger(**ZOO["Llama"].inputs("none"))
        assert [call.module for call in seen] == [
            "0", "1.layers.0.self_attn", "1.layers.1.self_attn",
        ]  # fmt: skip

    @pytest.mark.parametrize("path", ["layers.1", "layers.1.self_attn"])
    def test_a_part_alone(self, path: str, model: Model) -> None:
        part = model.get_submodule(path)
        with regard.watch(part) as seen, torch.no_grad():
            model(inputs())
        with regard.watch(model, where=path) as whole, torch.no_grad():
            model(inputs())
        assert [f"{path}.{call.module}".rstrip(".") for call in seen] == [
            call.module for call in whole
        ]
        for call, other in zip(seen, whole, strict=True):
            assert torch.equal(call.matrix.dense(), other.matrix.dense())
        if path == "layers.1.self_attn":
            assert rows(seen)[1][1] == "(the model)"
            assert str(seen[0]) == "call 0 (the model)"
            assert seen[""] is seen[0]

    @pytest.mark.parametrize("name", ["Llama", "BERT", "T5", "BLOOM"])
    def test_outputs_are_the_same(self, name: str) -> None:
        kind = ZOO[name]
        model = made(kind).train()

        def run() -> Tensor:
            torch.manual_seed(1)
            return model(**kind.inputs("left"))[0]

        expected = run()
        for options in ({}, {"keep": "copies"}, {"keep": [Entropy()]}, {"check": False}):
            with regard.watch(model, **options):
                assert torch.equal(run(), expected)


@pytest.fixture(scope="module", autouse=True)
def nothing_registered() -> Iterator[None]:
    yield
    assert "own" not in AttentionInterface._global_mapping


def test_values_are_kept_if_asked_for() -> None:
    model = nn.TransformerEncoderLayer(WIDTH, nhead=HEADS, batch_first=True).eval()
    tokens = torch.randn(2, 7, WIDTH)
    with regard.watch(model, values=True) as seen:
        model(tokens)
    call = seen[0]
    assert call.value.shape == call.key.shape
    weight, bias = model.self_attn.in_proj_weight[-WIDTH:], model.self_attn.in_proj_bias[-WIDTH:]
    expected = F.linear(tokens, weight, bias).unflatten(2, (HEADS, -1)).transpose(1, 2)
    assert torch.allclose(call.value, expected, atol=1e-6)


def test_values_that_were_not_kept() -> None:
    model = nn.TransformerEncoderLayer(WIDTH, nhead=HEADS, batch_first=True).eval()
    with regard.watch(model) as seen:
        model(torch.randn(2, 7, WIDTH))
    with pytest.raises(ValueError, match="watch the model with values=True"):
        _ = seen[0].value
