"""What models are called with, made from the names of their arguments and their configurations."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from zoo import sizes

Inputs = dict[str, Any]

_WANTED = (
    "input_ids",
    "attention_mask",
    "decoder_input_ids",
    "decoder_attention_mask",
    "pixel_values",
    "input_features",
    "input_values",
    "bbox",
    "image_grid_thw",
    "image",
    "flattened_patches",
)
"""What is given although it could be left out."""


def real(side: str, lengths: Sequence[int] = sizes.LENGTHS, length: int = sizes.LENGTH) -> Tensor:
    """Return which positions are no padding, [batch, length]: 0 or 1.

    Args:
        side: where the padding is: "left", "right", or "none".
        lengths: how many there are of each sequence.
        length: how many there are at most.
    """
    where = torch.arange(length)
    counts = torch.tensor(lengths)[:, None].clamp(max=length)
    if side == "none":
        counts = torch.full_like(counts, length)
    return (where >= length - counts if side == "left" else where < counts).long()


class InputMaker:
    """Makes what a model is called with.

    Args:
        model: the model.
        given: arguments that are known; functions of this object are called.
        omit: arguments that are to be left out.
    """

    def __init__(
        self, model: nn.Module, given: Mapping[str, Any] | None = None, omit: Sequence[str] = ()
    ) -> None:
        self.model, self.config = model, model.config
        self._given, self._omit = dict(given or {}), set(omit)
        self.parameters = {
            name: parameter
            for name, parameter in inspect.signature(model.forward).parameters.items()
            if parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
        }
        self.side = "none"
        self._seed = 0
        self._images: int | None = None

    @property
    def takes_padding(self) -> bool:
        """Whether it can be told of padding."""
        return "attention_mask" in self.parameters and "attention_mask" not in self._omit

    @property
    def takes_more(self) -> bool:
        """Whether it takes something beside text that it can do without."""
        return bool(self._beside_text() - self._omit)

    def _beside_text(self) -> set[str]:
        if "input_ids" not in self.parameters:
            return set()
        return {
            name
            for name in ("pixel_values", "input_features", "input_values", "image_grid_thw")
            if name in self.parameters
            and self.parameters[name].default is not inspect.Parameter.empty
        }

    def of(self, model: nn.Module) -> "InputMaker":
        """Return one that makes the same for another model of the type."""
        return InputMaker(model, self._given, list(self._omit))

    def others(self) -> Iterator[tuple[str, "InputMaker"]]:
        """Yield others, and what is special about them, for models that don't take these inputs."""
        if self.takes_more:
            omit = [*self._omit, *self._beside_text()]
            yield "text only", InputMaker(self.model, self._given, omit)
            return
        sound = [name for name in ("input_features", "input_values") if name in self.parameters]
        for name in sound:
            rule = self._given.get(name, _MAKERS[name])
            turned = {name: lambda maker, rule=rule: rule(maker).mT.contiguous()}
            one_channel = {name: lambda maker, rule=rule: rule(maker)[:, None]}
            for changed in (turned, one_channel):
                for omit in (self._omit, {*self._omit, "attention_mask"}):
                    yield "", InputMaker(self.model, {**self._given, **changed}, list(omit))
        if self.takes_padding:
            yield (
                "without a mask",
                InputMaker(self.model, self._given, [*self._omit, "attention_mask"]),
            )

    def make(self, side: str = "none") -> Inputs:
        """Return arguments.

        Args:
            side: where texts are padded: "left", "right", or "none".

        Raises:
            LookupError: there is no rule for an argument that must be given.
        """
        self.side, self._seed = side, 0
        made: Inputs = {}
        for name, parameter in self.parameters.items():
            if name in self._omit:
                continue
            if name in self._given:
                value = self._given[name]
                made[name] = value(self) if callable(value) else value
                continue
            required = parameter.default is inspect.Parameter.empty
            if required or name in _WANTED:
                rule = _MAKERS.get(name)
                if rule is None:
                    if required:
                        raise LookupError(f"no rule for the argument {name}")
                    continue
                value = rule(self)
                if value is not None:
                    made[name] = value
        for name in self._given:
            if name not in made and name not in self._omit:
                value = self._given[name]
                made[name] = value(self) if callable(value) else value
        return made

    def masks(self, made: Inputs) -> list[Tensor]:
        """Return which tokens are no padding, of texts of different lengths."""
        return [
            mask
            for name, mask in made.items()
            if name.endswith("attention_mask") and isinstance(mask, Tensor) and mask.dim() == 2
        ]

    def setting(self, *names: str, default: Any = None) -> Any:
        """Return the first setting of these names that any configuration in the tree has."""
        for config in self.configs():
            for name in names:
                found = getattr(config, name, None)
                if found is not None:
                    return found
        return default

    def configs(self) -> list[Any]:
        """Return the configuration and all inside."""
        from transformers import PreTrainedConfig

        found = [self.config]
        for config in found:
            found += [
                part
                for part in vars(config).values()
                if isinstance(part, PreTrainedConfig) and part not in found
            ]
        return found

    def chance(self) -> torch.Generator:
        """Return chance, another one at each call."""
        self._seed += 1
        return torch.Generator().manual_seed(self._seed)

    def numbers(self, *shape: int) -> Tensor:
        """Return random numbers."""
        return torch.randn(shape, generator=self.chance())

    def tokens(self, length: int = sizes.LENGTH, most: int | None = None) -> Tensor:
        """Return random tokens that mean nothing special."""
        last = sizes.LAST_WORD if most is None else min(most, sizes.LAST_WORD)
        first = min(sizes.FIRST_WORD, last - 2)
        return torch.randint(first, last, (sizes.BATCH, length), generator=self.chance())

    def image_shape(self) -> tuple[int, int, int]:
        """Return channels, height and width of images."""
        channels = self.setting("num_channels", "in_channels", "in_chans", default=3)
        size = self.setting("image_size", "img_size", default=sizes.LARGE_IMAGE)
        if isinstance(size, dict):
            size = (size["height"], size["width"])
        height, width = size if isinstance(size, list | tuple) else (size, size)
        return (channels if isinstance(channels, int) else 3), height, width

    def grid(self) -> tuple[int, int, int]:
        """Return time, height and width of images in patches, for models that want these."""
        merge = self.setting("spatial_merge_size", "merge_size", default=1)
        return 1, 2 * merge, 3 * merge


def _input_ids(maker: InputMaker) -> Tensor | None:
    config = maker.config
    text = config.get_text_config()
    size = getattr(text, "vocab_size", None) or sizes.VOCABULARY
    ids = maker.tokens(most=size if isinstance(size, int) else None)
    token = _image_token(maker)
    if token is None or "pixel_values" in maker._omit or "pixel_values" not in maker.parameters:
        return ids
    count = _num_image_tokens(maker)
    if count:
        images = torch.full((sizes.BATCH, count), token)
        ids = torch.cat([ids[:, :9], images, ids[:, 9:]], dim=1)
    return ids


def _image_token(maker: InputMaker) -> int | None:
    found = maker.setting("image_token_id", "image_token_index")
    return found if isinstance(found, int) else None


def _num_image_tokens(maker: InputMaker) -> int:
    """Return how many tokens an image takes: the model is asked."""
    if maker._images is not None:
        return maker._images
    inner: Any = maker.model
    ask: Callable[..., Any] | None = getattr(inner, "get_image_features", None)
    if ask is None:
        ask = getattr(getattr(inner, "model", None), "get_image_features", None)
    count = 0
    if ask is not None:
        known = inspect.signature(ask).parameters
        given: Inputs = {}
        for name in ("pixel_values", "image_grid_thw", "image_sizes", "pixel_attention_mask"):
            if name in known and (name in maker._given or name in _MAKERS):
                value = maker._given.get(name, _MAKERS.get(name))
                given[name] = value(maker) if callable(value) else value
        with torch.no_grad():
            count = _num_rows(ask(**given)) // sizes.BATCH
    maker._images = count
    return count


def _num_rows(features: Any) -> int:
    if hasattr(features, "pooler_output"):
        features = features.pooler_output
    if isinstance(features, list | tuple):
        return sum(_num_rows(part) for part in features)
    return features.numel() // features.shape[-1]


def _attention_mask(maker: InputMaker) -> Tensor | None:
    names = maker.parameters
    for name, rule in (("input_values", _input_values), ("input_features", _input_features)):
        if "input_ids" not in names and name in names and name not in maker._omit:
            made = maker._given.get(name, rule)
            shape = (made(maker) if callable(made) else made).shape
            if len(shape) == 2 or name == "input_values":
                length = shape[-1]
            else:
                length = shape[1] if shape[1] > shape[2] else shape[2]
            return real(maker.side, [length, length * 7 // 10, length // 2], length)
    if "input_ids" not in names:
        return None
    given = maker._given.get("input_ids")
    length = sizes.LENGTH + (maker._images or 0)
    if given is not None:
        length = (given(maker) if callable(given) else given).shape[1]
    lengths = [length - (sizes.LENGTH - one) for one in sizes.LENGTHS]
    if maker._images:
        # The padding must not reach the images.
        lengths = [length, length - 3, length - 5]
    return real(maker.side, lengths, length)


def _decoder_input_ids(maker: InputMaker) -> Tensor:
    return maker.tokens(sizes.TARGET_LENGTH)


def _decoder_attention_mask(maker: InputMaker) -> Tensor:
    return real(maker.side, (13, 9, 5), sizes.TARGET_LENGTH)


def _pixel_values(maker: InputMaker) -> Tensor:
    channels, height, width = maker.image_shape()
    if "image_grid_thw" in maker.parameters or "grid_thw" in maker.parameters:
        return _patches(maker)
    frames = maker.setting("num_frames", "frames_per_clip")
    if isinstance(frames, int) and "pixel_values_videos" not in maker.parameters:
        return maker.numbers(sizes.BATCH, frames, channels, height, width)
    return maker.numbers(sizes.BATCH, channels, height, width)


def _patches(maker: InputMaker) -> Tensor:
    """Return images as patches in one row, [patches, numbers]."""
    patch = maker.setting("patch_size", default=sizes.PATCH)
    frames = maker.setting("temporal_patch_size", default=1)
    channels = maker.image_shape()[0]
    time, height, width = maker.grid()
    return maker.numbers(sizes.BATCH * time * height * width, channels * frames * patch * patch)


def _grid_thw(maker: InputMaker) -> Tensor:
    return torch.tensor([maker.grid()] * sizes.BATCH)


def _hidden_states(maker: InputMaker) -> Tensor:
    if "grid_thw" in maker.parameters:
        return _patches(maker)
    return maker.numbers(sizes.BATCH, sizes.LENGTH, sizes.WIDTH)


def _pixel_values_videos(maker: InputMaker) -> Tensor:
    channels, height, width = maker.image_shape()
    frames = maker.setting("num_frames", "frames_per_clip", default=4)
    return maker.numbers(sizes.BATCH, frames, channels, height, width)


def _input_features(maker: InputMaker) -> Tensor:
    bins = maker.setting(
        "num_mel_bins",
        "n_mels",
        "input_feat_per_channel",
        "feature_projection_input_dim",
        "input_dim",
        "mel_bins",
        default=sizes.MEL_BINS,
    )
    channels_first = maker.setting("max_source_positions") and not maker.setting(
        "input_feat_per_channel"
    )
    frames = sizes.FRAMES
    if channels_first:
        return maker.numbers(sizes.BATCH, bins, frames)
    return maker.numbers(sizes.BATCH, 4 * frames + 1, bins)


def _input_values(maker: InputMaker) -> Tensor:
    if maker.setting("num_mel_bins"):
        return maker.numbers(
            sizes.BATCH, maker.setting("max_length", default=64), maker.setting("num_mel_bins")
        )
    strides = maker.setting("conv_stride")
    step = 1
    for stride in strides if isinstance(strides, list | tuple) else ():
        step *= stride
    length = step * sizes.LENGTH + step // 4 if step > 1 else sizes.SAMPLES
    if maker.setting("audio_channels"):
        return maker.numbers(sizes.BATCH, maker.setting("audio_channels"), length)
    return maker.numbers(sizes.BATCH, length)


def _bbox(maker: InputMaker) -> Tensor:
    corners = torch.randint(0, 100, (sizes.BATCH, sizes.LENGTH, 2), generator=maker.chance())
    return torch.cat([corners, corners + 7], dim=2)


def _encoder_hidden_states(maker: InputMaker) -> Tensor:
    return maker.numbers(sizes.BATCH, sizes.LENGTH, sizes.WIDTH)


_MAKERS: dict[str, Callable[[InputMaker], Any]] = {
    "input_ids": _input_ids,
    "attention_mask": _attention_mask,
    "decoder_input_ids": _decoder_input_ids,
    "decoder_attention_mask": _decoder_attention_mask,
    "pixel_values": _pixel_values,
    "pixel_values_videos": _pixel_values_videos,
    "image_grid_thw": _grid_thw,
    "grid_thw": _grid_thw,
    "hidden_states": _hidden_states,
    "input_features": _input_features,
    "input_values": _input_values,
    "bbox": _bbox,
    "inputs_embeds": _encoder_hidden_states,
    "encoder_hidden_states": _encoder_hidden_states,
    "query_embeds": lambda maker: maker.numbers(sizes.BATCH, sizes.QUERIES, sizes.WIDTH),
    "flattened_patches": lambda maker: maker.numbers(
        sizes.BATCH, 9, 2 + maker.image_shape()[0] * maker.setting("patch_size") ** 2
    ),
    "past_values": lambda maker: maker.numbers(
        sizes.BATCH, maker.setting("context_length"), maker.setting("num_input_channels", default=1)
    ),
    "image_sizes": lambda maker: torch.tensor([list(maker.image_shape()[1:])] * sizes.BATCH),
}
