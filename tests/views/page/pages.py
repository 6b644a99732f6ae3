"""Pages of made-up calls, and what can be asked of them in a browser."""

from collections.abc import Callable
from typing import Any

import torch

import regard
from regard.calls import AttentionCall
from tests.browsing import FRAMES

Open = Callable[..., Any]

HEADS = 3
WORDS = ["The", "animal", "didn't", "cross", "the", "street"]
WORDS += ["because", "it", "was", "too", "tired"]
PHONE = {"viewport": {"width": 360, "height": 780}, "has_touch": True, "is_mobile": True}
HOSTILE = [
    "<script>alert(1)</script>",
    "</script>",
    "</textarea>",
    "<img src=x onerror=alert(1)>",
    "שלום",
    "مرحبا",
    "🦊",
    "👩‍👩‍👧",
    "\ud83d",
    "\udc00",
    "\n",
    "\t",
    " ",
    "",
    "\x00",
    "\u202eabc",
    "a" * 90,
    "&lt;b&gt;",
    "${alert(1)}",
]


def call_of(
    queries: int, keys: int | None = None, *, looks: str = "self", module: str = "layers.0.attn"
) -> Any:
    generator = torch.Generator().manual_seed(queries + len(module))
    query, key = (
        2 * torch.randn(1, HEADS, size, 6, generator=generator)
        for size in (queries, keys or queries)
    )
    return AttentionCall.of(regard.AttentionMatrix(query, key), module, looks, index=0)


def calls_of(tokens: int, *, layers: int = 4) -> list[Any]:
    return [
        call_of(tokens, module=f"{'l' * (1 + layer)}ayers.{layer}.attn") for layer in range(layers)
    ]


def html_of(tokens: list[str], *, layers: int = 4, **options: Any) -> str:
    return regard.page(calls_of(len(tokens), layers=layers), tokens, **options).html


def shown(page: Any) -> str:
    """The sentence about the token in question, when the page has come to rest."""
    page.evaluate(FRAMES)
    return page.locator(".sentence").inner_text()


def head(page: Any) -> str:
    shown(page)
    return page.locator(".headline h2").inner_text()


def token(page: Any, index: int, side: str = "queries") -> Any:
    """The element of a token, among lines or in running text."""
    lines = page.locator(f".column.{side} .token")
    return lines.nth(index) if lines.count() else page.locator(".words .token").nth(index)
