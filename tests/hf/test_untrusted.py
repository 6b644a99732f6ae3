"""A model of somebody else is loaded without running what its files ask for."""

import io
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import huggingface_hub
import pytest
import torch
from huggingface_hub.errors import EntryNotFoundError
from transformers import AutoConfig, AutoModel

from regard.atlas.loader import located, pretrained
from regard.cli.loading import load, load_tokenizer
from regard.hf.untrusted import check_safetensors, config_of
from tests.atlas.surveying import small_model

pytestmark = pytest.mark.usefixtures("quiet_transformers")

READERS: tuple[Callable[[str], object], ...] = (load, lambda model: pretrained(model).model())
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


@pytest.mark.parametrize(
    "said",
    [
        {"num_hidden_layers": 10**9},
        {"num_labels": 10**9},
        {"text_config": {"num_hidden_layers": 10**9}},
        {"depths": [2, 10**9]},
    ],
    ids=str,
)
def test_a_model_of_a_billion_layers_is_refused_at_once(
    model: Path, said: dict[str, object]
) -> None:
    told(model, **said)
    for read in READERS:
        with pytest.raises(ValueError, match=r"must be at most [0-9,]+, got 1,000,000,000$"):
            read(str(model))


@pytest.fixture
def pickled(model: Path) -> Path:
    """A pickle beside a model, whose weights nobody asked to unpickle."""
    elsewhere = model.parent / "elsewhere"
    elsewhere.mkdir()
    found = AutoModel.from_pretrained(model)
    torch.save(found.state_dict(), elsewhere / "pytorch_model.bin")
    (model / "model.safetensors").rename(model / "decoy.safetensors")
    return elsewhere / "pytorch_model.bin"


def index_of(model: Path, shard: object, name: str = "model.safetensors.index.json") -> None:
    names = list(AutoModel.from_config(AutoConfig.from_pretrained(model)).state_dict())
    index = {"metadata": {}, "weight_map": dict.fromkeys(names, shard)}
    (model / name).write_text(json.dumps(index))


def refused(model: Path, rule: str) -> None:
    for read in READERS:
        with pytest.raises(OSError, match=rule) as raised:
            read(str(model))
        assert len(str(raised.value).splitlines()) == 1


@pytest.mark.parametrize(
    "shard",
    [
        "../elsewhere/pytorch_model.bin",
        "pytorch_model.bin",
        "../elsewhere/model.safetensors",
        "/elsewhere/model.safetensors",
        "a\\model.safetensors",
        3,
        ["model.safetensors"],
    ],
    ids=str,
)
def test_an_index_names_safetensors_of_its_folder(model: Path, pickled: Path, shard: str) -> None:
    index_of(model, shard)
    refused(model, "must name .*safetensors of its folder only|must be an index of weights")


def test_an_index_of_safetensors_is_read(model: Path, pickled: Path) -> None:
    index_of(model, "decoy.safetensors")
    assert load(str(model)).model is not None
    assert pretrained(str(model)).model() is not None


@pytest.mark.parametrize(
    "name", ["adapter_model.bin", "../elsewhere/model.safetensors", "pytorch_model.bin.index.json"]
)
def test_a_config_names_safetensors_of_its_folder(model: Path, pickled: Path, name: str) -> None:
    (model / "adapter_model.bin").write_bytes(pickled.read_bytes())
    index_of(model, "adapter_model.bin", "pytorch_model.bin.index.json")
    told(model, transformers_weights=name)
    refused(model, "transformers_weights of .* must name a .*safetensors of its folder, got")


def test_an_adapter_is_refused(model: Path) -> None:
    """With peft, transformers would unpickle it."""
    (model / "adapter_config.json").write_text("{}")
    refused(model, r"has an adapter \(adapter_config\.json\), which may be pickled")


def test_an_index_of_the_hub_is_read_first(
    model: Path, pickled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index_of(model, "pytorch_model.bin")

    def download(name: str, file: str, *, revision: str | None) -> str:
        assert (name, revision) == ("somebody/model", "0a1b")
        if not (model / file).exists():
            raise EntryNotFoundError(file)
        return str(model / file)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    config = AutoConfig.from_pretrained(model)
    config._commit_hash = "0a1b"
    with pytest.raises(OSError, match=r"must name .*safetensors of its folder only"):
        check_safetensors("somebody/model", config)
    index_of(model, "model-00001-of-00001.safetensors")
    check_safetensors("somebody/model", config)
