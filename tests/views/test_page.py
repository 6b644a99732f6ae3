"""What a page holds, read as the page reads it, against dense weights; and what it is made of."""

import base64
import html
import json
import re
import sys
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import regard
from regard.calls import AttentionCall
from regard.matrix.view import View
from regard.views.page import Page
from regard.views.page import encoding as encoding_of_page

pytestmark = pytest.mark.usefixtures("one_thread")

HEADS, DIM = 3, 5
ROUNDING = 2e-5
"""What the page says of weights of 16 bits."""

HOSTILE = [
    "</script><script>alert(1)</script>",
    "<!--",
    "]]>",
    "\ud800",
    "שלום",
    "🙂",
    "\u2028",
    "",
]


@dataclass(frozen=True, eq=False, kw_only=True)
class KnownCall(AttentionCall):
    """A call with its dense weights, [heads, queries, keys]."""

    weights: Tensor


def call_of(
    queries: int, keys: int | None = None, *, looks: str = "self", module: str = "layers.0.attn"
) -> Any:
    """Return a call of random queries and keys, with its dense weights."""
    keys = queries if keys is None else keys
    generator = torch.Generator().manual_seed(queries * keys + len(module))
    query, key = (
        3 * torch.randn(1, HEADS, size, DIM, generator=generator) for size in (queries, keys)
    )
    pattern = regard.causal() if looks == "self" else None
    matrix = regard.AttentionMatrix(query, key, pattern=pattern)
    scores = query.double() @ key.double().mT / DIM**0.5
    if looks == "self":
        hidden = torch.ones(queries, keys, dtype=torch.bool).triu(1)
        scores = scores.masked_fill(hidden, -torch.inf)
    return KnownCall.of(matrix, module, looks, index=0, weights=scores.softmax(dim=-1)[0])


def element(page: Page, name: str) -> str:
    """Return what is in an element of a page."""
    (found,) = re.findall(rf'<script type="[^"]*" id="regard-{name}">(.*?)</script>', page.html)
    return found


def facts(page: Page) -> Any:
    return json.loads(element(page, "page"))


def inflated(page: Page, name: str) -> "np.ndarray[Any, Any]":
    data = zlib.decompress(base64.b64decode(element(page, name)))
    return np.frombuffer(data, dtype=np.uint8)


def decoded(data: Any, sections: int, queries: int, keys: int, bits: int) -> list[Tensor]:
    """Return the weights that are there, as dense matrices."""
    found: list[Tensor] = []
    for edges in edges_in(data, sections, queries, bits):
        dense = torch.zeros(queries, keys, dtype=torch.float64)
        for (query, key), weight in edges.items():
            dense[query, key] = weight
        found.append(dense)
    return found


def edges_in(
    data: Any, sections: int, queries: int, bits: int
) -> list[dict[tuple[int, int], float]]:
    """Return the weights that are there, by query and key."""
    found: list[dict[tuple[int, int], float]] = []
    place = 0

    def take(count: int) -> Any:
        nonlocal place
        place += count
        return data[place - count : place].astype(np.int64)

    for _ in range(sections):
        counts = take(queries)
        total = int(counts.sum())
        codes = take(total) + 256 * take(total)
        if bits == 8:
            weights = (take(total) / 255) ** 2
        else:
            weights = (take(total) + 256 * take(total)) / 65535
        edges: dict[tuple[int, int], float] = {}
        entry = 0
        for rank in range(int(counts.max(initial=0))):
            for query in np.flatnonzero(counts > rank):
                code = codes[entry]
                back = code // 2 if code % 2 == 0 else -(code + 1) // 2
                key = 65535 - code if code >= 65532 else query - back
                edges[int(query), int(key)] = float(weights[entry])
                entry += 1
        assert entry == total == len(edges)
        found.append(edges)
    assert place == len(data)
    return found


def strongest(weights: Tensor, count: int) -> Tensor:
    """Return weights with only the largest of each row left."""
    top, places = weights.topk(min(count, weights.shape[-1]), dim=-1)
    return torch.zeros_like(weights).scatter(-1, places, top)


@pytest.mark.parametrize("length", [1, 2, 7, 67])
def test_all_heads_and_means_are_there(length: int) -> None:
    calls = [call_of(length, module=f"layers.{number}.attn") for number in range(2)]
    page = regard.page(calls, [f"t{number}" for number in range(length)], keep=5)
    for number, call in enumerate(calls):
        found = decoded(inflated(page, f"edges-{number}"), HEADS + 1, length, length, 16)
        expected = [*call.weights, call.weights.mean(dim=0)]
        for one, other in zip(found, expected, strict=True):
            assert torch.allclose(one, strongest(other, 5), atol=ROUNDING)
    (average,) = decoded(inflated(page, "average-0"), 1, length, length, 16)
    mean = torch.stack([call.weights for call in calls]).mean(dim=(0, 1))
    assert torch.allclose(average, strongest(mean, 5), atol=ROUNDING)


def test_long_texts_have_weights_of_eight_bits() -> None:
    call = call_of(513)
    page = regard.page([call], ["t"] * 513)
    found = decoded(inflated(page, "edges-0"), HEADS + 1, 513, 513, 8)
    # Half a step of the square root is at most 1/255 of the weight's own.
    assert torch.allclose(found[0], strongest(call.weights[0], 16), atol=1 / 255)


def test_maps_are_pooled_weights() -> None:
    call = call_of(130)
    page = regard.page([call], ["t"] * 130)
    # 130 tokens in cells of 3 are 44 cells.
    maps = inflated(page, "maps").reshape(HEADS + 1, 44, 44)
    padded = torch.nn.functional.pad(call.weights, (0, 2, 0, 2))
    sums = padded.unflatten(2, (44, 3)).unflatten(1, (44, 3)).sum(dim=(2, 4))
    sizes = torch.tensor([3.0] * 43 + [1.0])
    cells = sums / (sizes[:, None] * sizes)
    expected = (cells / cells.amax(dim=(1, 2), keepdim=True)).sqrt() * 255
    assert np.abs(maps[:HEADS] - expected.numpy()).max() <= 0.51


def test_short_texts_have_maps_only_if_edges_are_left_out() -> None:
    whole, some = (regard.page([call_of(9)], ["t"] * 9, keep=keep) for keep in (9, 8))
    assert 'id="regard-maps"' not in whole.html
    assert inflated(some, "maps").size == (HEADS + 1) * 81


def test_an_encoder_and_a_decoder() -> None:
    calls = [
        call_of(4, module="encoder.layers.0.self_attn"),
        call_of(6, module="decoder.layers.0.self_attn"),
        call_of(6, 4, looks="cross", module="decoder.layers.0.cross_attn"),
    ]
    page = regard.page(calls, list("abcdef"), source=list("wxyz"))
    said = facts(page)
    assert [text["name"] for text in said["texts"]] == ["source", "target"]
    placed = [(layer["group"], layer["queries"], layer["keys"]) for layer in said["layers"]]
    assert placed == [("encoder", 0, 0), ("decoder", 1, 1), ("cross", 1, 0)]
    found = decoded(inflated(page, "edges-2"), HEADS + 1, 6, 4, 16)
    assert torch.allclose(found[0], calls[2].weights[0], atol=ROUNDING)


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize(("query", "key"), [(0, 31_999), (31_999, 0), (31_999, 4), (5, 5), (5, 6)])
def test_far_keys_have_codes(query: int, key: int, bits: int) -> None:
    keys, weights = torch.full((1, query + 1, 1), -1), torch.zeros(1, query + 1, 1)
    keys[0, query], weights[0, query] = key, 1.0
    some = encoding_of_page.Strongest(keys.int(), weights)
    data = encoding_of_page.edges([some], floor=0.0, weight_bits=bits)
    assert edges_in(np.frombuffer(data, np.uint8), 1, query + 1, bits) == [{(query, key): 1.0}]


def test_the_weakest_are_left_out_of_what_would_be_too_large() -> None:
    call = call_of(200)
    full = regard.page([call], ["t"] * 200)
    small = regard.page([call], ["t"] * 200, limit=15_000)
    assert facts(full)["floor"] == 0.0
    floor = facts(small)["floor"]
    assert floor > 0.0
    assert len(small.html) < len(full.html)
    (found, *_) = decoded(inflated(small, "edges-0"), HEADS + 1, 200, 200, 16)
    expected = strongest(call.weights[0], 16)
    assert torch.allclose(found, expected.where(expected >= floor, 0.0), atol=ROUNDING)


def test_tokens_do_no_harm() -> None:
    page = regard.page([call_of(len(HOSTILE))], HOSTILE, title="</title><b>")
    assert facts(page)["texts"][0]["pieces"][0] == HOSTILE[0]
    # Nothing ends an element before its time.
    assert page.html.count("<title>") == page.html.count("</title>") == 1
    assert page.html.count("<script") == page.html.count("</script>")
    assert "alert(1)</script>" not in page.html
    assert page.html.encode("utf-8")


def test_nothing_comes_from_elsewhere() -> None:
    page = regard.page([call_of(4)], list("abcd"))
    assert "default-src 'none'" in page.html
    assert not re.search(r"""(?:src|href)\s*=\s*["']?(?:https?:)?//""", page.html)


def test_a_matrix_of_its_own() -> None:
    matrix = call_of(4).matrix
    assert facts(regard.page(matrix, list("abcd")))["layers"][0]["heads"] == [0, 1, 2]
    assert facts(regard.page(matrix[0, 1], list("abcd")))["layers"][0]["heads"] == [1]


WHOLE = "abcdefghijk"
PARTS = {
    "keys": (..., slice(4, None)),
    "queries": (..., slice(5, None), slice(None)),
    "a query": (..., slice(10, 11), slice(None)),
    "both, others": (..., slice(0, 4), slice(4, None)),
    "both, as many others": (..., slice(0, 4), slice(5, 9)),
    "both, the same": (..., slice(3, 8), slice(3, 8)),
    "some of both": (..., slice(1, None, 3), slice(2, None, 2)),
    "heads": (slice(None), slice(1, None)),
    "a head": (0, 2),
    "all of it": (0, slice(1, 3), slice(2, 9, 2), slice(1, None, 3)),
}


# Tokens of a part can name queries and keys if these are the same, and two texts need a matrix.
NAMED = [
    *((part, "whole", call) for part in PARTS for call in (True, False)),
    *((part, "part", call) for part in ("both, the same", "a head") for call in (True, False)),
    *((part, "two texts", False) for part in PARTS),
]


@pytest.mark.parametrize(("part", "named", "call"), NAMED)
def test_parts_are_what_they_are_in_the_whole(part: str, named: str, call: bool) -> None:
    """Weights, tokens, positions and the numbers of the heads, in every way to name tokens."""
    whole = call_of(len(WHOLE), module="layers.3.attn")
    matrix = whole.matrix[PARTS[part]]
    heads, rows, columns = (list(getattr(matrix.view, x)) for x in ("heads", "queries", "keys"))
    texts = ["".join(WHOLE[place] for place in places) for places in (rows, columns)]
    options: dict[str, Any] = {"tokens": list(WHOLE)}
    if named == "part":
        options = {"tokens": list(texts[0])}
    elif named == "two texts":
        options = {"tokens": list(texts[0]), "source": list(texts[1])}
    given = AttentionCall.of(matrix, whole.module, index=0) if call else matrix
    page = regard.page(given, keep=20, **options)
    said = facts(page)
    (layer,) = said["layers"]
    assert layer["heads"] == heads
    assert layer["title"] == ("layer 3" if call else "attention")
    for side, text, places in zip(("queries", "keys"), texts, (rows, columns), strict=True):
        shown = said["texts"][layer[side]]
        assert "".join(piece.strip() for piece in shown["pieces"]) == text
        assert (shown["positions"] or list(range(len(places)))) == places
    sizes = (len(heads) + 1, len(rows), len(columns), 16)
    found = decoded(inflated(page, "edges-0"), *sizes)
    weights = whole.weights[heads][:, rows][:, :, columns]
    for one, other in zip(found, [*weights, weights.mean(dim=0)], strict=True):
        assert torch.allclose(one, other, atol=ROUNDING)


def test_parts_are_called_by_their_positions() -> None:
    matrix = call_of(len(WHOLE)).matrix
    for where, names in {
        "both, others": ["text 0–3", "text 4–10"],
        "a query": ["token 10", "text"],
        "some of both": ["part of text", "part of text"],
        "both, the same": ["text 3–7"],
    }.items():
        said = facts(regard.page(matrix[PARTS[where]], list(WHOLE)))
        assert [text["name"] for text in said["texts"]] == names
    said = facts(regard.page(matrix[0, 1, :1, 4:], ["a"], source=list("efghijk")))
    assert [text["name"] for text in said["texts"]] == ["source 4–10", "target token 0"]


def test_a_matrix_of_few_queries_is_of_the_end_of_a_text() -> None:
    call = call_of(3, 7)
    matrix = regard.AttentionMatrix(torch.randn(1, 2, 3, 4), torch.randn(1, 2, 7, 4))
    for given in (matrix, AttentionCall.of(matrix, call.module, index=0)):
        texts = facts(regard.page(given, list("abcdefg")))["texts"]
        assert [text["positions"] for text in texts] == [[4, 5, 6], None]


def test_several_matrices() -> None:
    said = facts(regard.page([call_of(4).matrix, call_of(4).matrix], list("abcd")))
    assert [layer["name"] for layer in said["layers"]] == ["0", "1"]
    assert [layer["title"] for layer in said["layers"]] == ["matrix 0", "matrix 1"]
    assert [average["title"] for average in said["averages"]] == ["all 2 matrices"]


def test_calls_without_a_number_are_no_layers() -> None:
    calls = [call_of(4, module=module) for module in ("first.attn", "second.attn", "third.attn")]
    said = facts(regard.page(calls, list("abcd")))
    assert [layer["title"] for layer in said["layers"]] == ["call 0", "call 1", "call 2"]
    assert said["averages"][0]["title"] == "all 3 calls"
    said = facts(regard.page(calls[1], list("abcd")))
    assert said["layers"][0]["title"] == said["averages"][0]["title"] == "attention"
    assert said["layers"][0]["module"] == "second.attn"


def test_what_is_not_zero_is_not_written_as_zero() -> None:
    for length, bits in ((4, 16), (600, 8)):
        weights = torch.zeros(1, 1, length, length)
        weights[..., 0] = 1e-30
        weights[..., 1] = 1.0
        page = regard.page(regard.AttentionMatrix.from_weights(weights), ["t"] * length)
        for edges in edges_in(inflated(page, "edges-0"), 2, length, bits):
            assert len(edges) == 2 * length
            assert 0.0 < min(edges.values()) < 2e-5


def test_a_page_that_would_show_something_else_is_not_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With the fault that pages of slices once had: keys counted in the whole matrix."""
    call = call_of(len(WHOLE), module="layers.3.attn")
    monkeypatch.setattr(View, "columns", lambda view, keys: keys)
    for where in ((..., slice(4, None)), (..., slice(4, None), slice(4, None))):
        part = AttentionCall.of(call.matrix[where], call.module, index=0)
        with pytest.raises(RuntimeError, match=r"layer 3 has other weights than its matrix\. This"):
            regard.page(part, list(WHOLE))


def _spoiled(data: bytes, fault: str) -> bytes:
    """Return the edges of 3 heads and their mean over 11 tokens, of 16 bits, with a fault."""
    numbers = bytearray(data)
    if fault == "count":
        numbers[0] += 1
    elif fault == "key":
        numbers[11] ^= 2
    elif fault == "far key":
        numbers[11] = 200
    elif fault == "weight":
        numbers[11 + 2 * sum(numbers[:11])] ^= 1
    elif fault == "cut":
        del numbers[-1]
    elif fault == "more":
        numbers.append(0)
    return bytes(numbers)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("none", ""),
        ("count", "layer 3 has other numbers of keys in section 0 than were found"),
        ("key", "layer 3 looks at other keys in section 0 than were found"),
        ("far key", r"layer 3 looks at key -\d+ or 10 of 11"),
        ("weight", "layer 3 has other weights in section 0 than were found"),
        ("cut", "layer 3 is cut short"),
        ("more", "layer 3 has 1 bytes too many"),
    ],
)
def test_what_is_written_is_read_again(
    fault: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = sys.modules["regard.views.page.page"]
    written = module.edges  # type: ignore[attr-defined]
    monkeypatch.setattr(module, "edges", lambda *a, **b: _spoiled(written(*a, **b), fault))
    call = call_of(len(WHOLE), module="layers.3.attn")
    if not message:
        regard.page(call, list(WHOLE))
        return
    with pytest.raises(RuntimeError, match=message):
        regard.page(call, list(WHOLE))


def test_weights_above_one_are_refused() -> None:
    weights = torch.eye(4)[None, None] * 1.25
    matrix = regard.AttentionMatrix.from_weights(weights, check=False)
    with pytest.raises(ValueError, match=r"must be from 0 to 1, and attention has one of 1\.25"):
        regard.page(matrix, list("abcd"))


def test_layers_have_the_numbers_of_the_model() -> None:
    calls = [call_of(4, module=f"model.layers.{number}.attn") for number in (3, 7)]
    said = facts(regard.page(calls, list("abcd")))
    assert [layer["name"] for layer in said["layers"]] == ["3", "7"]


@pytest.mark.usefixtures("unchecked")
def test_what_is_no_call() -> None:
    with pytest.raises(TypeError, match=r"got Tensor; .* AttentionMatrix.from_weights"):
        regard.page((torch.ones(1, 1, 2, 2),), ["a", "b"])  # type: ignore[arg-type]


def test_numbers_that_are_none() -> None:
    query = torch.full((1, HEADS, 4, DIM), torch.nan)
    page = regard.page(regard.AttentionMatrix(query, query), list("abcd"))
    assert facts(page)["layers"][0]["measures"]["entropy"] == [None] * HEADS


def test_notebooks_show_a_frame_of_its_own() -> None:
    page = regard.page([call_of(4)], list("abcd"), title='a "title"')
    shown = page._repr_html_()
    (inner,) = re.findall(r'srcdoc="([^"]*)"', shown)
    assert html.unescape(inner) == page.html
    assert 'title="a &quot;title&quot;"' in shown
    assert "sandbox=" in shown


def test_what_it_says_of_itself(tmp_path: Any) -> None:
    page = regard.page([call_of(4)], list("abcd"), title="Letters")
    assert re.fullmatch(r"Page\('Letters': 1 layer, 4 tokens, \d+ kB\)", repr(page))
    path = page.save(tmp_path / "it.html")
    assert path.read_text(encoding="utf-8") == page.html


@pytest.mark.parametrize(
    ("calls", "options", "message"),
    [
        ([], {}, "there are no calls of attention to show"),
        ([call_of(3)], {}, "text has 4 tokens, but layers.0.attn has 3 queries.*stitched"),
        ([call_of(5)], {}, "text has 4 tokens, but layers.0.attn has 5 queries"),
        (
            [call_of(4, 6, looks="cross")],
            {},
            "is cross-attention: pass the tokens of its keys",
        ),
        ([call_of(4)], {"keep": 0}, "keep must be at least 1, got 0"),
        ([call_of(4)], {"sentence_b_start": 4}, "sentence_b_start must be from 1 to 3, got 4"),
        (
            call_of(4).matrix[..., :2, :],
            {"sentence_b_start": 2},
            "sentence_b_start needs one text, and all of its tokens as queries and keys",
        ),
        (
            call_of(9).matrix[..., 2:6, 4:],
            {},
            "text has 4 tokens, but attention has 5 keys.* or those of its queries as tokens and",
        ),
        (
            call_of(3, 7, looks="cross").matrix,
            {},
            "attention has 3 queries.*for cross-attention, pass the tokens of the keys",
        ),
        (
            [call_of(4).matrix, call_of(6).matrix[..., 1:5, 1:5]],
            {},
            r"must have the same queries and keys, but those of number 1 \(attention\) differ",
        ),
    ],
)
def test_what_does_not_fit(calls: list[Any], options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        regard.page(calls, list("abcd"), **options)


def test_texts_that_are_too_long() -> None:
    x = torch.zeros(1, 1, 32_001, 1)
    matrix, tokens = regard.AttentionMatrix(x, x), ["a"] * 32_001
    with pytest.raises(ValueError, match="up to 32,000 tokens, got 32,001"):
        regard.page(matrix, tokens)
    said = facts(regard.page(matrix[..., -4:, -5:], tokens))
    assert [text["name"] for text in said["texts"]] == ["text 31997–32000", "text 31996–32000"]
