"""A sample of the zoo: what is seen of a type is what the type itself says, or is refused."""

import copy
import re

import pytest
import torch
from transformers import BertConfig, BertModel

import regard
from regard.calls import AttentionCall
from regard.calls.outputs import OutputGradient
from tests.installed import VERSION, asks, needs_config
from tests.small import SIZES
from zoo import effects, page, types
from zoo.examine import examine
from zoo.sample import SAMPLE

pytestmark = pytest.mark.usefixtures("one_thread", "quiet_transformers")


@pytest.mark.parametrize("name", SAMPLE)
def test_type(name: str) -> None:
    if name not in types.names():
        pytest.skip(f"{VERSION} has no {name}")
    needs_config(types.config_class(name))
    found = examine(name)
    assert not found.wrong
    expected = {SAMPLE[name]}
    documented = f"and {VERSION}, " in page.PAGE.read_text(encoding="utf-8")
    if SAMPLE[name] == "exact" and not documented and not asks(types.model_class(name)):
        # What computes attention by itself may return the weights of some layers only, as Swin of
        # older versions does, which returns those of the last in each stage.
        expected |= {"understood"}
    assert found.verdict in expected
    if found.verdict == "refused":
        assert found.reasons


@pytest.mark.parametrize("wrong", ["", "ablate", "norms", "gradient", "effects"])
def test_wrong_effects_are_noticed(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model = BertModel(BertConfig(**SIZES)).eval()
    eager = copy.deepcopy(model)
    eager.set_attn_implementation("eager")
    texts, mask = torch.arange(3, 27).view(2, 12), torch.ones(2, 12, dtype=torch.long)
    mask[1, 8:] = 0
    expected = effects.softmaxes(eager, lambda: eager(texts, mask), [mask])
    ablate = regard.ablate
    if wrong == "ablate":
        monkeypatch.setattr(regard, "ablate", lambda model, heads: ablate(model, [(0, 0)]))
    elif wrong == "norms":
        monkeypatch.setattr(AttentionCall, "norms", AttentionCall.matrix)
    elif wrong == "gradient":
        monkeypatch.setattr(OutputGradient, "add", lambda self, new: setattr(self, "total", -new))
    elif wrong == "effects":
        monkeypatch.setattr(AttentionCall, "effects", AttentionCall.matrix)
    found = effects.faults(model, lambda: model(texts, mask), [mask], expected)
    assert bool(found.wrong) == bool(wrong), found
    assert found.compared == len(expected) == SIZES["num_hidden_layers"]


def test_nothing_on_the_page_is_wrong() -> None:
    text = page.PAGE.read_text(encoding="utf-8")
    assert "| WRONG | 0 |" in text
    ran = re.search(r"(\d+) of (\d+) types ran", text)
    assert ran
    assert int(ran[1]) >= 400


def test_the_sample_has_forty_types() -> None:
    assert len(SAMPLE) == 40
