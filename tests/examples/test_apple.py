"""The two apples of one sentence, in a real encoder."""

from pathlib import Path

import pytest
import torch

from examples.apple import Finding, draw, find

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def finding() -> Finding:
    return find()


def test_they_are_one_vector_in_the_table(finding: Finding) -> None:
    assert [finding.words[place] for place in finding.apples] == ["apple", "apple"]
    assert torch.equal(*finding.embeddings)


def test_they_part(finding: Finding) -> None:
    entering, *after = finding.similarities
    assert max(after) < entering
    assert min(after) < 0.85


def test_each_is_nearer_to_its_kind(finding: Finding) -> None:
    company, fruit = finding.leanings[-1]
    assert company[0] > company[1]
    assert fruit[1] > fruit[0]


def test_what_they_see_sums_up_to_one(finding: Finding) -> None:
    torch.testing.assert_close(finding.seen.sum(dim=-1), torch.ones(2))


def test_draw(finding: Finding, tmp_path: Path) -> None:
    path = tmp_path / "apple.svg"
    draw(finding, path)
    assert path.stat().st_size > 5_000
