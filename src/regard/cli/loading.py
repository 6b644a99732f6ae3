"""Load transformers models from a folder, a GGUF file or the hub, without running their code."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from regard.calls.call import layer_index
from regard.hf.untrusted import check_safetensors, config_of

Kind = Literal["text", "text to text", "image"]

_PICKLED = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.h5", "*.msgpack")


@dataclass(frozen=True)
class Loaded:
    """A model with its tokenizer or image processor.

    Attributes:
        model: the model, in evaluation mode.
        prepare: its tokenizer, or its image processor.
        kind: the kind of its input.
        name: its name in output.
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
        device: the device of the model.
        generates: whether to load a decoder with its language-model head.
        allow_pickle: whether to read pickled weights, which can run code.
        allow_remote_code: whether to run Python files that come with the model.

    Raises:
        OSError: there is no such model, or its weights are pickled and `allow_pickle` is false.
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
            raise OSError(f"can't read {where}/config.json: {error}") from error
        raise OSError(_not_found(model)) from error
    if not allow_pickle and "gguf_file" not in options:
        options |= check_safetensors(where, config)
    options |= {"trust_remote_code": allow_remote_code}
    kind = _kind(config)
    if kind != "image":
        _check_tokenizer(where, options)
    if generates and kind != "text":
        raise ValueError(f"--model must be a text decoder; {model} takes {kind}")
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
            f"can't read the weights of {model}, or they don't fit its config.json; the download "
            f"may be incomplete ({said})"
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
    """Return the arguments of `from_pretrained`."""
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
            f"--device {device} is not available: `regard doctor` lists the devices"
        ) from error


def _check_tokenizer(where: str, options: dict[str, Any]) -> None:
    """Raise OSError if a folder has no vocabulary: transformers would make an empty one."""
    folder = Path(where)
    if "gguf_file" in options or not folder.is_dir():
        return
    kinds = ("tokenizer.json", "vocab*", "*.model", "*.spm", "merges.txt", "*.tiktoken")
    if not any(list(folder.glob(kind)) for kind in kinds):
        raise OSError(f"{where} has no tokenizer: add tokenizer.json or its vocabulary files")


def _check_complete(model: str, missing: Iterable[str]) -> None:
    """Raise OSError if attention weights are missing: transformers initialises them randomly."""
    lost = sorted(name for name in missing if layer_index(name))
    if lost:
        raise OSError(
            f"{len(lost)} weights of {model} are missing ({lost[0]}, …): its files don't fit its "
            "config.json"
        )


def _need(package: str) -> None:
    try:
        __import__(package)
    except ImportError as error:
        raise ImportError(f"reading GGUF needs {package}: pip install {package}") from error


def _check_weights(where: str, options: dict[str, Any]) -> None:
    """Raise OSError if a folder has no safetensors."""
    folder = Path(where)
    if "gguf_file" in options or not folder.is_dir() or list(folder.glob("*.safetensors")):
        return
    pickled = [file.name for pattern in _PICKLED for file in sorted(folder.glob(pattern))]
    if pickled:
        raise OSError(
            f"the weights in {where} are pickled ({pickled[0]}), and a pickle can run any code: "
            "pass --allow-pickle if you trust them, or convert them to safetensors"
        )
    raise OSError(f"{where} has no weights: expected *.safetensors")


def _not_found(model: str) -> str:
    if model.startswith((".", "/", "~")) or model.count("/") > 1:
        return f"there is no folder {model}"
    return (
        f"there is no folder {model}, and the Hugging Face hub did not return such a model: check "
        "the name and the network, or pass a local folder"
    )


def _kind(config: Any) -> Kind:
    if hasattr(config, "text_config") and hasattr(config, "vision_config"):
        raise ValueError(
            f"the command line does not run models of text and images ({config.model_type}): use "
            "regard.watch"
        )
    if getattr(config, "is_encoder_decoder", False):
        if not getattr(config, "vocab_size", None) or hasattr(config, "num_mel_bins"):
            raise ValueError(
                f"the command line does not run {config.model_type}, which takes no text: use "
                "regard.watch"
            )
        return "text to text"
    if getattr(config, "image_size", None) and getattr(config, "patch_size", None):
        return "image"
    return "text"


def _image_processor(transformers: Any, where: str, config: Any, options: dict[str, Any]) -> Any:
    """Return the model's image processor, or that of ViT if it has none."""
    try:
        return transformers.AutoImageProcessor.from_pretrained(where, **options)
    except (OSError, ValueError):
        size = config.image_size
        height, width = (size, size) if isinstance(size, int) else size
        return transformers.ViTImageProcessor(size={"height": height, "width": width})
