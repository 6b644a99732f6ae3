"""Models of transformers, from a folder, a GGUF file or the hub, without running their code."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

Kind = Literal["text", "text to text", "image"]

_PICKLED = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.h5", "*.msgpack")


@dataclass(frozen=True)
class Loaded:
    """A model, and what turns text or images into what it takes.

    Attributes:
        model: the model, in evaluation mode.
        prepare: its tokenizer, or its image processor.
        kind: what it takes.
        name: what to call it.
    """

    model: nn.Module
    prepare: Any
    kind: Kind
    name: str


def load(
    model: str,
    *,
    device: str = "cpu",
    allow_pickle: bool = False,
    allow_remote_code: bool = False,
) -> Loaded:
    """Load a model.

    Args:
        model: a folder, a GGUF file, or a name on the Hugging Face hub.
        device: where to put it.
        allow_pickle: whether weights may be read that can run code when they are read.
        allow_remote_code: whether Python files that come with the model may be run.

    Raises:
        OSError: it isn't there, or its weights are of a kind that wasn't allowed.
        ImportError: transformers is not installed.
    """
    try:
        import transformers
    except ImportError as error:
        raise ImportError('loading models needs transformers: pip install "regard[hf]"') from error
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    where, options = _located(model)
    if not allow_pickle:
        _check_weights(where, options)
    options |= {"trust_remote_code": allow_remote_code}
    try:
        config = transformers.AutoConfig.from_pretrained(where, **options)
    except OSError as error:
        raise OSError(_not_found(model)) from error
    kind = _kind(config)
    auto = transformers.AutoModelForSeq2SeqLM if kind == "text to text" else transformers.AutoModel
    weights = {} if "gguf_file" in options else {"use_safetensors": not allow_pickle}
    loaded = auto.from_pretrained(where, dtype=torch.float32, **weights, **options)
    prepare: Any
    if kind == "image":
        prepare = _image_processor(transformers, where, config, options)
    else:
        prepare = transformers.AutoTokenizer.from_pretrained(where, **options)
    name = Path(model).stem if "gguf_file" in options else Path(model).name
    return Loaded(loaded.to(device).eval(), prepare, kind, name)


def _located(model: str) -> tuple[str, dict[str, Any]]:
    """Return where transformers finds a model, and what to tell it."""
    path = Path(model).expanduser()
    if path.suffix == ".gguf":
        if not path.is_file():
            raise OSError(f"there is no file {model}")
        for package in ("gguf", "accelerate"):
            _need(package)
        return str(path.parent), {"gguf_file": path.name}
    if path.is_file():
        raise OSError(f"{model} is a file: pass its folder, or a .gguf file")
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise OSError(f"{model} has no config.json: pass the folder of a transformers model")
        return str(path), {}
    return model, {}


def _need(package: str) -> None:
    try:
        __import__(package)
    except ImportError as error:
        raise ImportError(f"reading GGUF needs {package}: pip install {package}") from error


def _check_weights(where: str, options: dict[str, Any]) -> None:
    """Raise OSError if the weights of a folder can only be read by running code."""
    folder = Path(where)
    if "gguf_file" in options or not folder.is_dir() or list(folder.glob("*.safetensors")):
        return
    pickled = [file.name for pattern in _PICKLED for file in sorted(folder.glob(pattern))]
    if pickled:
        raise OSError(
            f"the weights in {where} are pickled ({pickled[0]}), and reading a pickle can run any "
            "code that is in it: pass --allow-pickle if you trust them, or convert them to "
            "safetensors"
        )
    raise OSError(f"{where} has no weights: expected a file *.safetensors")


def _not_found(model: str) -> str:
    if model.startswith((".", "/", "~")) or model.count("/") > 1:
        return f"there is no folder {model}"
    return (
        f"there is no folder {model}, and no model of that name could be fetched from the Hugging "
        "Face hub: check the name and the network, or pass a folder that is on this machine"
    )


def _kind(config: Any) -> Kind:
    if getattr(config, "is_encoder_decoder", False):
        return "text to text"
    if getattr(config, "image_size", None) and getattr(config, "patch_size", None):
        return "image"
    return "text"


def _image_processor(transformers: Any, where: str, config: Any, options: dict[str, Any]) -> Any:
    """Return what prepares images: the model's own, or the usual one if it brings none."""
    try:
        return transformers.AutoImageProcessor.from_pretrained(where, **options)
    except (OSError, ValueError):
        size = config.image_size
        height, width = (size, size) if isinstance(size, int) else size
        return transformers.ViTImageProcessor(size={"height": height, "width": width})
