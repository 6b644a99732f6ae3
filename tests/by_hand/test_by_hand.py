"""Of no attention module that people write is anything said that is wrong."""

import pytest
import torch

from tests.by_hand.judge import PARTS, REFUSED, RIGHT, WRONG, Verdicts, judge
from tests.by_hand.modules import BY_HAND, Spec, specs

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile"),
]

ALL = list(specs())
SAMPLE = sorted(ALL, key=lambda spec: spec.seed)[:150]
EACH = 25
"""Modules in a test."""


def refusals(spec: Spec, verdicts: Verdicts) -> set[str]:
    """Return the questions that may be refused."""
    if spec.mask == "padding left" and spec.fill == -torch.inf and not spec.is_cached:
        # Rows without keys are NaN, and so is their gradient.
        return {"effects", "head effects"}
    may = {"mean"} if spec.kernel == "flex" or spec.is_cross else set[str]()
    if spec.kernel in BY_HAND:
        # Their queries and keys are not known.
        may |= {*PARTS} - {"output"}
    if spec.kernel == "flex":
        # Two masks of functions can't be compared, and one of them may be padding.
        may |= {"query", "key", "weights"}
    return may


def assert_judged(spec: Spec) -> None:
    verdicts = judge(spec)
    wrong = [f"{question}: {answer}" for question, answer in verdicts.items() if WRONG in answer]
    assert not wrong, f"{spec}: {wrong}"
    if spec.is_plain:
        allowed = refusals(spec, verdicts)
        refused = {name: x for name, x in verdicts.items() if x != RIGHT and name not in allowed}
        assert not refused, f"{spec}: {refused}"


def chunks(modules: list[Spec]) -> list[list[Spec]]:
    return [modules[start : start + EACH] for start in range(0, len(modules), EACH)]


@pytest.mark.parametrize("modules", chunks(SAMPLE), ids=lambda modules: str(modules[0]))
def test_a_sample(modules: list[Spec]) -> None:
    for spec in modules:
        assert_judged(spec)


@pytest.mark.thorough
@pytest.mark.parametrize("modules", chunks(ALL), ids=lambda modules: str(modules[0]))
def test_all(modules: list[Spec]) -> None:
    for spec in modules:
        assert_judged(spec)


def test_the_sample_is_of_all_kinds() -> None:
    for name in ("kernel", "layout", "sizes", "mask", "kind"):
        assert {getattr(spec, name) for spec in SAMPLE} == {getattr(spec, name) for spec in ALL}
    assert any(spec.is_plain and spec.kernel in BY_HAND for spec in SAMPLE)


def test_what_is_refused_says_why() -> None:
    heads_in_batch = Spec("matmul", "flat", "one query", "none", "plain")
    answer = judge(heads_in_batch)["knock_out"]
    assert answer.startswith(f"{REFUSED}: the attention of the model can't be altered: which")
