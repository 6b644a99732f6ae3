"""Run a model over a text or an image, and watch its attention."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.calls import AttentionCall
from regard.calls.call import layer_index
from regard.calls.texts import TextLayer, layers_of, texts_of
from regard.capture import Seen, watch
from regard.cli.console import doing
from regard.cli.loading import Loaded, load
from regard.cli.next_token import NextToken
from regard.cli.reading import read_input

_LONGEST_ANSWER = 64


@dataclass(frozen=True)
class Run:
    """A watched run of a model.

    Attributes:
        seen: its calls of attention.
        tokens: the tokens of the text, or of the decoder.
        source: the tokens of the encoder of an encoder–decoder.
        image: the preprocessed image, if any.
        patches: rows and columns of patches.
        offsets: start and end of each token in the text, for fast tokenizers.
        logit: the target of effects, if they were wanted.
    """

    seen: Seen
    tokens: list[str]
    source: list[str] | None = None
    image: Any = None
    patches: tuple[int, int] | None = None
    offsets: list[tuple[int, int]] | None = None
    logit: float | None = None

    def layers_of(self, calls: Sequence[AttentionCall]) -> list[TextLayer]:
        """Return calls with their query and key tokens."""
        return layers_of(calls, texts_of(self.tokens, self.source), None)


def layer_number(call: AttentionCall) -> int:
    """Return a call's layer, as the model counts."""
    return int(call.layer or call.index)


def watched(
    text: str,
    model: str,
    *,
    target: str | None = None,
    layer: int | None = None,
    values: bool = False,
    tokens: int | None = None,
    effect: NextToken | None = None,
    device: str = "cpu",
    allow_pickle: bool = False,
    allow_remote_code: bool = False,
) -> tuple[Loaded, str | Path, Run]:
    """Load a model, run it, and verify the calls; arguments as for `load` and `run`.

    `text` is a text, the path of a text or an image, or "-" for stdin.

    Returns:
        The model, the text or the path of the image, and the run.
    """
    given = read_input(text)
    if isinstance(given, str) and not given.strip():
        raise ValueError("the text is empty")
    with doing(f"loading {model}"):
        loaded = load(
            model,
            device=device,
            generates=effect is not None,
            allow_pickle=allow_pickle,
            allow_remote_code=allow_remote_code,
        )
    with doing(f"running {loaded.name}"):
        found = run(
            loaded, given, target=target, layer=layer, values=values, tokens=tokens, effect=effect
        )
    found.seen.verify()
    return loaded, given, found


def run(
    loaded: Loaded,
    text: "str | Path",
    *,
    target: str | None = None,
    layer: int | None = None,
    values: bool = False,
    tokens: int | None = None,
    effect: NextToken | None = None,
) -> Run:
    """Run a model over a text or an image, and watch it.

    Args:
        loaded: the model.
        text: the text, or the path of an image.
        target: the decoder's text of an encoder–decoder; by default the model generates it.
        layer: watch only this layer.
        values: whether to keep values.
        tokens: number of tokens to take from the start of the text; by default all.
        effect: the target of effects, if they are wanted; the model must be a decoder.

    Raises:
        ValueError: the model does not take this kind of input, the text is empty or too long, or
            there is a target for a model other than an encoder–decoder.
    """
    if isinstance(text, Path) != (loaded.kind == "image"):
        wanted = "an image file" if loaded.kind == "image" else "a text"
        raise ValueError(f"{loaded.name} takes {wanted}, got {str(text)[:60]!r}")
    if target is not None and loaded.kind != "text to text":
        raise ValueError(
            f"--target needs an encoder–decoder; {loaded.name} takes {loaded.kind}: leave it out"
        )
    inputs, run_of = _prepared(loaded, text, target, tokens)
    _check_layer(loaded, layer)
    try:
        if effect is not None:
            target_of = effect.prepared(loaded, inputs)
            with torch.enable_grad(), watch(loaded.model, where=layer, effects=True) as seen:
                logit = target_of()
                logit.backward()
            return replace(run_of(seen), logit=logit.item())
        with torch.no_grad(), watch(loaded.model, where=layer, values=values) as seen:
            loaded.model(**inputs)
    except IndexError as error:
        # Beyond the table of positions; not every config has its length.
        raise ValueError(f"the text is too long for {loaded.name}: shorten it") from error
    return run_of(seen)


def _check_layer(loaded: Loaded, layer: int | None) -> None:
    if layer is None:
        return
    numbers = {int(layer_index(name) or 0) for name, _ in loaded.model.named_modules()}
    if layer not in numbers:
        last = max(numbers, default=0)
        raise ValueError(f"--layer must be from 0 to {last}, got {layer}")


def _prepared(
    loaded: Loaded, text: "str | Path", target: str | None, most: int | None
) -> tuple[dict[str, Any], Callable[[Seen], Run]]:
    """Return the model's inputs, and a function that makes a run of the watched calls."""
    device = next(loaded.model.parameters()).device
    if isinstance(text, Path):
        return _prepared_image(loaded, text, device)
    encoded, offsets = _encoded(loaded, text, device, most)
    ids = encoded["input_ids"][0].tolist()
    tokens = loaded.prepare.convert_ids_to_tokens(ids)
    if loaded.kind != "text to text":
        return encoded, partial(Run, tokens=tokens, offsets=offsets)
    answer = _answer(loaded, encoded, target, device)
    target_tokens = loaded.prepare.convert_ids_to_tokens(answer[0].tolist())
    inputs = {**encoded, "decoder_input_ids": answer}
    return inputs, partial(Run, tokens=target_tokens, source=tokens)


def _encoded(
    loaded: Loaded, text: str, device: torch.device, most: int | None
) -> tuple[dict[str, Any], list[tuple[int, int]] | None]:
    """Return the model's inputs, and the tokens' offsets in the text, if known."""
    quick = bool(getattr(loaded.prepare, "is_fast", False))
    cut = {} if most is None else {"truncation": True, "max_length": most}
    encoded = loaded.prepare(
        text, return_tensors="pt", verbose=False, return_offsets_mapping=quick, **cut
    )
    offsets = [tuple(one) for one in encoded.pop("offset_mapping")[0].tolist()] if quick else None
    encoded = encoded.to(device)
    length = encoded["input_ids"].shape[1]
    if not length:
        raise ValueError("the text is empty")
    config: Any = loaded.model.config
    longest = getattr(config, "max_position_embeddings", None) or getattr(
        config, "n_positions", None
    )
    if isinstance(longest, int) and length > longest:
        shorter = "shorten it, or use `regard record --tokens`"
        if most is not None:
            shorter = f"pass --tokens {longest}"
        raise ValueError(
            f"{loaded.name} takes at most {longest:,} tokens, got {length:,}: {shorter}"
        )
    wanted = ("input_ids", "attention_mask", "token_type_ids")
    return {name: encoded[name] for name in wanted if name in encoded}, offsets


def _answer(
    loaded: Loaded, encoded: dict[str, Any], target: str | None, device: torch.device
) -> torch.Tensor:
    """Return the decoder's input: the target, or a generated text."""
    model: Any = loaded.model
    if target is None:
        with torch.no_grad():
            return model.generate(**encoded, max_new_tokens=_LONGEST_ANSWER, do_sample=False)[
                :, :-1
            ]
    labels = loaded.prepare(text_target=target, return_tensors="pt")["input_ids"].to(device)
    first = model.config.decoder_start_token_id
    return torch.cat([labels.new_full((1, 1), first), labels[:, :-1]], dim=1)


def _prepared_image(
    loaded: Loaded, path: Path, device: torch.device
) -> tuple[dict[str, Any], Callable[[Seen], Run]]:
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError('reading images needs pillow: pip install "regard[cli]"') from error
    with Image.open(path) as file:
        image = file.convert("RGB")
    pixels = loaded.prepare(image, return_tensors="pt")["pixel_values"].to(device)
    shown = _as_seen(pixels[0].cpu())

    def run_of(seen: Seen) -> Run:
        num_tokens = seen[0].keys
        config: Any = loaded.model.config
        patch = config.patch_size if isinstance(config.patch_size, int) else config.patch_size[0]
        rows, columns = pixels.shape[2] // patch, pixels.shape[3] // patch
        first = num_tokens - rows * columns
        if first < 0 or any(call.batch > 1 or call.keys != num_tokens for call in seen):
            raise ValueError(
                f"can't draw over the image: {loaded.name} does not attend to all patches at once; "
                "use regard.watch"
            )
        names = ["[CLS]", *(f"[REG{number}]" for number in range(1, first))][:first]
        places = [f"({row},{column})" for row in range(rows) for column in range(columns)]
        return Run(seen, names + places, image=shown, patches=(rows, columns))

    return {"pixel_values": pixels}, run_of


def _as_seen(pixels: Float[Tensor, "3 height width"]) -> Float[Tensor, "height width 3"]:
    """Return a preprocessed image with brightness from 0 to 1."""
    darkest, brightest = pixels.min(), pixels.max()
    return ((pixels - darkest) / (brightest - darkest).clamp(min=1e-6)).permute(1, 2, 0)
