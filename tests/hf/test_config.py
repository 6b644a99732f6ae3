"""A model of somebody else is loaded without running what its files ask for."""

import io
import json
import os
import sys
from pathlib import Path

import pytest

from regard.atlas.loader import located, pretrained
from regard.cli.loading import load, load_tokenizer
from regard.hf.config import config_of
from tests.atlas.surveying import small_model

pytestmark = pytest.mark.usefixtures("quiet_transformers")

CODE = "raise SystemExit('code of the model was run')\n"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return small_model(tmp_path / "small")


def told(model: Path, **said: object) -> None:
    """Write something into the config of a model."""
    path = model / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | said))


@pytest.mark.parametrize(
    "said",
    [
        {"attn_implementation": "evil/kernel"},
        {"_attn_implementation": "evil/kernel"},
        {"_attn_implementation_internal": "evil/kernel"},
        {"attn_implementation": "flash_attention_2"},
        {"attn_implementation": "kernels-community/flash-attn2"},
    ],
    ids=str,
)
def test_a_config_names_no_kernel(model: Path, said: dict[str, str]) -> None:
    told(model, **said)
    assert config_of(str(model))._attn_implementation is None
    for found in (pretrained(str(model)).model(), load(str(model)).model):
        assert found.config._attn_implementation in ("sdpa", "eager")


def test_code_of_a_model_is_refused_and_nobody_is_asked(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (model / "theirs.py").write_text(CODE)
    told(
        model,
        model_type="theirs",
        auto_map={"AutoConfig": "theirs.Config", "AutoModel": "theirs.Model"},
    )
    # Whoever asked would be told yes.
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n" * 10))
    for refused in (pretrained(str(model)).model, lambda: load(str(model))):
        with pytest.raises(ValueError, match="trust_remote_code"):
            refused()


def test_code_of_a_tokenizer_is_refused_and_nobody_is_asked(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (model / "theirs.py").write_text(CODE)
    path = model / "tokenizer_config.json"
    said = {
        "tokenizer_class": "Theirs",
        "auto_map": {"AutoTokenizer": ["theirs.Theirs", None]},
    }
    path.write_text(json.dumps(json.loads(path.read_text()) | said))
    told(model, model_type="theirs")
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n" * 10))
    for refused in (pretrained(str(model)).tokenizer, lambda: load_tokenizer(str(model))):
        with pytest.raises(ValueError, match="trust_remote_code"):
            refused()


def test_changed_weights_are_noticed_by_content(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    weights = model / "model.safetensors"
    gguf = tmp_path / "it.gguf"
    gguf.write_bytes(b"GGUF" + bytes(100))
    for path, place in ((weights, model), (gguf, gguf)):
        before, times = located(str(place)), path.stat()
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)
        # Of the same size and time.
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        after = located(str(place))
        assert before[:2] == after[:2]
        assert before[2] != after[2]
        assert all((before[2], after[2]))
    assert located(str(gguf))[0] == "it"
    assert located("no/such-model") == ("no/such-model", "no/such-model", "")
