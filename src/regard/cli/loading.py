"""Models of transformers, from a folder, a GGUF file or the hub, without running their code."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from regard.calls.call import layer_in
from regard.hf.config import config_of

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
    generates: bool = False,
    allow_pickle: bool = False,
    allow_remote_code: bool = False,
) -> Loaded:
    """Load a model.

    Args:
        model: a folder, a GGUF file, or a name on the Hugging Face hub.
        device: where to put it.
        generates: whether a decoder is needed with the head that scores tokens.
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
    _check_device(device)
    try:
        config = config_of(where, allow_remote_code=allow_remote_code, **options)
    except OSError as error:
        if Path(where).is_dir():
            raise OSError(f"{where}/config.json can't be read: {error}") from error
        raise OSError(_not_found(model)) from error
    options |= {"trust_remote_code": allow_remote_code}
    kind = _kind(config)
    if kind != "image":
        _check_tokenizer(where, options)
    if generates and kind != "text":
        raise ValueError(f"{model} is no decoder: pass a model that goes on with a text")
    auto: Any = transformers.AutoModelForCausalLM if generates else transformers.AutoModel
    if kind == "text to text":
        auto = transformers.AutoModelForSeq2SeqLM
    weights = {} if "gguf_file" in options else {"use_safetensors": not allow_pickle}
    try:
        loaded, report = auto.from_pretrained(
            where,
            config=config,
            dtype=torch.float32,
            output_loading_info=True,
            **weights,
            **options,
        )
    except (OSError, ImportError):
        raise
    except Exception as error:
        said = str(error).strip().split("\n")[0]
        raise OSError(
            f"the weights of {model} can't be read, or don't fit its config.json; an incomplete "
            f"download is a likely reason ({said})"
        ) from error
    _check_complete(model, report["missing_keys"])
    prepare: Any
    if kind == "image":
        prepare = _image_processor(transformers, where, config, options)
    else:
        prepare = transformers.AutoTokenizer.from_pretrained(where, **options)
    path = Path(model).expanduser()
    name = path.stem if "gguf_file" in options else (path.resolve() if path.is_dir() else path).name
    return Loaded(loaded.to(device).eval(), prepare, kind, name)


def load_tokenizer(model: str, *, allow_remote_code: bool = False) -> Any:
    """Load the tokenizer of a model alone; arguments and errors as for `load`."""
    import transformers

    where, options = _located(model)
    _check_tokenizer(where, options)
    try:
        return transformers.AutoTokenizer.from_pretrained(
            where, trust_remote_code=allow_remote_code, **options
        )
    except OSError as error:
        raise OSError(_not_found(model)) from error


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


def _check_device(device: str) -> None:
    try:
        torch.empty(0, device=device)
    except (AssertionError, NotImplementedError, RuntimeError) as error:
        raise ValueError(
            f"--device {device} can't be used here: `regard doctor` lists the devices"
        ) from error


def _check_tokenizer(where: str, options: dict[str, Any]) -> None:
    """Raise OSError if a folder has no vocabulary: transformers would invent one."""
    folder = Path(where)
    if "gguf_file" in options or not folder.is_dir():
        return
    kinds = ("tokenizer.json", "vocab*", "*.model", "*.spm", "merges.txt", "*.tiktoken")
    if not any(list(folder.glob(kind)) for kind in kinds):
        raise OSError(
            f"{where} has no tokenizer: put tokenizer.json, or the files of its vocabulary, beside "
            "the weights"
        )


def _check_complete(model: str, missing: Iterable[str]) -> None:
    """Raise OSError if weights of attention were made up because they are not in the file."""
    lost = sorted(name for name in missing if layer_in(name))
    if lost:
        raise OSError(
            f"{len(lost)} weights of {model} are not in its files ({lost[0]}, …): they don't fit "
            "its config.json"
        )


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
    if hasattr(config, "text_config") and hasattr(config, "vision_config"):
        raise ValueError(
            f"models of text and images ({config.model_type}) can't be run from the command line: "
            "use regard.watch"
        )
    if getattr(config, "is_encoder_decoder", False):
        if not getattr(config, "vocab_size", None) or hasattr(config, "num_mel_bins"):
            raise ValueError(
                f"{config.model_type} takes no text: use regard.watch around a call of it"
            )
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
