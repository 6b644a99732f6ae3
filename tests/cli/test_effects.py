"""`regard look` and `regard heads` with `--effect-of`, against gradients of eager attention."""

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import regard
from regard.cli.app import app
from tests.attribution.models import decoder, tokenizer
from tests.cli.test_attribute import folder as folder

TEXT = "The sea was calm . Harriet bought a"


def run(command: str, *words: object) -> str:
    ran = CliRunner().invoke(app, [command, TEXT, *map(str, words)])
    assert ran.exit_code == 0, ran.output
    return ran.stdout


def difference(model: Any) -> torch.Tensor:
    prepare: Any = tokenizer()
    violin, sea = prepare("violin sea", add_special_tokens=False)["input_ids"]
    logits = model(torch.tensor([prepare(TEXT)["input_ids"]])).logits[0, -1]
    return logits[violin] - logits[sea]


def test_effects_of_a_token_are_gradients_with_respect_to_its_scores(folder: Path) -> None:
    given = ("-m", folder, "--effect-of", "violin", "--against", "sea")
    found = json.loads(run("look", *given, "--json", "--top", 99))
    model = decoder().float()
    with regard.watch(model, effects=True) as seen:
        target = difference(model)
        target.backward()
    assert found["position"] == len(found["tokens"]) - 1
    assert found["target"] == "the logit of “violin” minus that of “sea”"
    assert found["logit"] == pytest.approx(target.item(), abs=1e-5)
    for one in found["heads"]:
        row = seen[one["layer"]].effects[0, one["head"], -1]
        listed = {key["position"]: key["effect"] for key in one["keys"]}
        assert [listed[place] for place in range(len(row))] == pytest.approx(row.tolist(), abs=1e-5)
        assert one["strength"] == pytest.approx(row.abs().max().item(), abs=1e-5)
    strengths = [one["strength"] for one in found["heads"]]
    assert strengths == sorted(strengths, reverse=True)
    printed = run("look", "-m", folder, "--effect-of", "violin", "--top", 1)
    assert "the logit of “violin” is" in printed


def test_effects_that_are_large_by_size_are_listed(folder: Path) -> None:
    given = ("-m", folder, "--effect-of", "violin", "--against", "sea")
    found = json.loads(run("look", *given, "--json", "--top", 3))
    model = decoder().float()
    with regard.watch(model, effects=True) as seen:
        difference(model).backward()
    signs: set[float] = set()
    for one in found["heads"]:
        row = seen[one["layer"]].effects[0, one["head"], -1].tolist()
        strongest = sorted(range(len(row)), key=lambda place: -abs(row[place]))[:3]
        assert [key["position"] for key in one["keys"]] == strongest
        signs |= {math.copysign(1.0, row[place]) for place in strongest}
    assert signs == {-1.0, 1.0}


def test_heads_are_sorted_by_effect(folder: Path) -> None:
    given = ("-m", folder, "--effect-of", "violin", "--against", "sea")
    found = json.loads(run("heads", *given, "--json"))
    expected = regard.interventions.heads(model := decoder().float(), lambda: difference(model))
    for one in found:
        assert one["effect"] == pytest.approx(
            expected.effects[one["layer"], one["head"]].item(), abs=1e-4
        )
    effects = [one["effect"] for one in found]
    assert effects == sorted(effects, reverse=True)
    assert "by its gradient" in run("heads", *given)


def test_a_page_of_effects(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    run("look", "-m", folder, "--effect-of", "violin", "--against", "sea", "--save", path)
    html = path.read_text(encoding="utf-8")
    assert f"<title>{TEXT} – {folder.name}</title>" in html
    target = "the logit of “violin” minus that of “sea”"
    (said,) = re.findall(r'id="regard-page">(.*?)</script>', html)
    assert json.loads(said)["effect_on"] == target


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--effect-of", "violin sea"], "must be one token each"),
        (["--effect-of", "banjo"], "has no token 'banjo', only '[UNK]' for unknown ones"),
        (["--against", "sea"], "--against needs --effect-of"),
        (["--effect-of", "sea", "--save", "page.png"], "--save must end with .html, got page.png"),
    ],
)
def test_what_can_not_be_is_refused(folder: Path, words: list[str], said: str) -> None:
    ran = CliRunner().invoke(app, ["look", TEXT, "-m", str(folder), *words])
    assert ran.exit_code == 1
    assert said in " ".join(ran.output.split())


def test_a_recording_has_them(folder: Path, tmp_path: Path) -> None:
    given = ("-m", folder, "--effect-of", "violin", "--against", "sea")
    run("record", *given, "--out", tmp_path / "it.regard")
    recording = regard.open(tmp_path / "it.regard")
    assert recording.target == "the logit of “violin” minus that of “sea”"
    model = decoder().float()
    with regard.watch(model, effects=True) as seen:
        difference(model).backward()
    for found, wanted in zip(recording, seen, strict=True):
        torch.testing.assert_close(found.effects.dense(), wanted.effects.dense())
