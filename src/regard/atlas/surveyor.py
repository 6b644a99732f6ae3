"""Run a model on windows, and add up the measures of its heads."""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor, nn

from regard.atlas.examples import Example, excerpt
from regard.atlas.head_statistics import REACH, SINK_LOOKERS, Habits, HabitsResult
from regard.atlas.probes import Coreference, Probe, Relations
from regard.atlas.sampled_top_keys import Glimpses, GlimpsesResult
from regard.atlas.shard_windows import Settings
from regard.atlas.stable_hash import drawn
from regard.atlas.tally import Tally
from regard.atlas.vocabulary import Vocabulary
from regard.atlas.window import TokenWindow
from regard.capture import Seen, watch
from regard.matrix.reduction import AnyReduction

BATCH_TOKENS = 4096
"""Approximate tokens per batch."""

_GLIMPSES = 4


class Surveyor:
    """Runs a model on windows, and adds up the measures of its heads.

    Windows of one length form a batch, so that nothing is padded.

    Args:
        model: a model of transformers that takes `input_ids`, in evaluation mode.
        tokenizer: its tokenizer.
        settings: the settings of the survey.
        batch_size: maximum windows per batch.
    """

    def __init__(
        self, model: nn.Module, tokenizer: Any, settings: Settings, batch_size: int = 32
    ) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}")
        self._modules: list[str] = []
        self._model, self._batch_size, self._seed = model, batch_size, settings.seed
        self._effects = settings.effects
        if settings.effects:
            # Outputs of attention need gradients, parameters don't.
            model.requires_grad_(False)
        self._vocabulary = Vocabulary(tokenizer)
        self._device = next(model.parameters()).device
        self._options = {"use_cache": False} if hasattr(_config(model), "use_cache") else {}
        self._probes: list[Probe] | None = None
        self._is_causal = False

    def count(self, windows: Sequence[TokenWindow]) -> Tally:
        """Return the sums over some windows.

        Raises:
            RuntimeError: the watched weights don't reproduce the model's outputs.
            ValueError: the model has no self-attention over the text.
        """
        # Dropout outside of attention would not be noticed.
        self._model.eval()
        tally = Tally()
        for batch in _batches(windows, self._batch_size):
            self._count_batch(batch, tally)
        tally.modules = self._modules
        return tally

    def _count_batch(self, windows: Sequence[TokenWindow], tally: Tally) -> None:
        kind = windows[0].kind
        ids = torch.tensor([window.ids for window in windows], device=self._device)
        probes = [probe for probe in self._known_probes(ids[:1]) if probe.kind == kind]
        # The sentences of windows with mentions are counted already.
        counts = [] if kind == "mentions" else [_Counts(windows, self._vocabulary, self._seed)]
        reductions = [one for each in counts for one in each.reductions]
        seen = self._seen(ids, [*reductions, *(probe.groups(windows) for probe in probes)])
        if self._effects and kind in ("text", "sentence"):
            for window in ids:
                self._add_effects(window[None], tally)
        for each in counts:
            each.add_totals(tally)
        for probe in probes:
            probe.count(windows, tally)
        for number, call in enumerate(seen):
            own, asked = call.results[: len(reductions)], call.results[len(reductions) :]
            for each in counts:
                each.add(tally, number, *own)
            for probe, between in zip(probes, asked, strict=True):
                probe.score(windows, between.numpy()["weights"], number, tally)

    def _seen(self, ids: torch.Tensor, reductions: Sequence[AnyReduction]) -> Seen:
        with torch.no_grad(), watch(self._model, keep=reductions) as seen:
            self._model(input_ids=ids, **self._options)
        seen.verify()
        length = ids.shape[1]
        others = [call for call in seen if call.kind != "self" or call.keys != length]
        if not seen or others or getattr(_config(self._model), "is_encoder_decoder", False):
            raise ValueError(
                f"{type(self._model).__name__} must have only self-attention over the text: "
                "survey an encoder or a decoder, not an encoder–decoder"
            )
        self._modules = [call.module for call in seen]
        return seen

    def _add_effects(self, ids: Int[Tensor, "1 tokens"], tally: Tally) -> None:
        """Add the size of the effect of each head on the mean log-probability of the next token."""
        if ids.shape[1] < 2:
            return
        if not self._is_causal:
            raise ValueError(f"effects need a decoder, and {type(self._model).__name__} is none")
        with torch.enable_grad(), watch(self._model, effects=True) as seen:
            output = self._model(input_ids=ids, **self._options)
            if not hasattr(output, "logits"):
                raise ValueError(
                    f"effects need a language-model head, and {type(self._model).__name__} has none"
                )
            logits = output.logits[0, :-1]
            logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
            logits.log_softmax(dim=-1).gather(1, ids[0, 1:, None]).mean().backward()
        tally.add("effect_windows", 1)
        for number, call in enumerate(seen):
            tally.add("effect", call.checked_gradient.by_head().abs().cpu().numpy(), number)

    def _known_probes(self, ids: torch.Tensor) -> list[Probe]:
        """Return the probes, for a causal model or not; tested on two tokens."""
        if self._probes is None:
            with torch.no_grad(), watch(self._model, check=False) as seen:
                self._model(input_ids=ids[:, :1].expand(1, 2), **self._options)
            for call in seen:
                if call.pattern is None:
                    raise ValueError(
                        f"which pairs {call} masks is unknown, so its heads can't be measured: "
                        f"{call.problem or 'the model changes its scores in ways not followed'}"
                    )
            patterns = [call.pattern for call in seen if call.pattern is not None]
            self._is_causal = not any(bool(pattern.allows([0], [1])) for pattern in patterns)
            self._probes = [Relations(causal=self._is_causal), Coreference()]
        return self._probes


class _Counts:
    """The measures of a batch of windows, without the probes."""

    def __init__(self, windows: Sequence[TokenWindow], vocabulary: Vocabulary, seed: int) -> None:
        self._windows = windows
        self._prefix = "repeats/" if windows[0].kind == "repeats" else ""
        self._kinds = vocabulary.kinds([window.ids for window in windows])
        self._chances = [np.random.default_rng(drawn(window.name, seed)) for window in windows]
        length = len(windows[0].ids)
        rows = torch.tensor(
            np.stack([chance.integers(0, length, _GLIMPSES) for chance in self._chances])
        )
        hidden = self._kinds.separators.clone()
        hidden[:, 0] = True
        self._glimpses = Glimpses(rows, hidden)

    @property
    def reductions(self) -> list[AnyReduction]:
        return [Habits(self._kinds), self._glimpses]

    def add_totals(self, tally: Tally) -> None:
        """Add the counts that are common to all heads."""
        batch, length = self._kinds.ids.shape
        far = np.abs(np.arange(-REACH, REACH + 1))
        totals = {
            "rows": batch * length,
            "windows": batch,
            "near_rows": batch * np.maximum(length - far, 0),
            "same_rows": self._kinds.count(self._kinds.same),
            "after_rows": self._kinds.count(self._kinds.after),
            "sink_windows": batch if length >= SINK_LOOKERS else 0,
        }
        for name, count in totals.items():
            tally.add(self._prefix + name, count)

    def add(self, tally: Tally, call: int, habits: HabitsResult, glimpses: GlimpsesResult) -> None:
        """Add the measures of the heads of a call."""
        for name, values in habits.numpy().items():
            tally.add(self._prefix + name, values, call)
        if not self._prefix:
            self._add_examples(tally, call, glimpses)

    def _add_examples(self, tally: Tally, call: int, glimpses: GlimpsesResult) -> None:
        weights, keys = (x.cpu().numpy() for x in (glimpses.weights, glimpses.keys))
        best = weights.argmax(axis=2)
        for number, (window, chance) in enumerate(zip(self._windows, self._chances, strict=True)):
            draws = 1.0 - chance.random(weights.shape[1])
            for head, draw in enumerate(draws.tolist()):
                which = best[number, head]
                weight = float(weights[number, head, which])
                if weight == 0.0:
                    continue
                # The logarithm of draw ** (1 / weight), which underflows for small weights.
                priority = math.log(draw) / weight
                if not tally.examples.would_keep(call, head, priority):
                    continue
                row = int(self._glimpses.rows[number, which])
                places = window.offsets[row], window.offsets[int(keys[number, head, which])]
                if window.special[row]:
                    continue
                text, query, key = excerpt(window.text, *places)
                example = Example(priority, weight, window.name, text, *query, *key)
                tally.examples.add(call, head, example)


def _batches(windows: Sequence[TokenWindow], batch_size: int) -> Iterator[list[TokenWindow]]:
    """Yield batches of windows of one kind and length."""
    alike: defaultdict[tuple[str, int], list[TokenWindow]] = defaultdict(list)
    for window in windows:
        alike[window.kind, len(window.ids)].append(window)
    for (_, length), group in sorted(alike.items()):
        size = max(1, min(batch_size, BATCH_TOKENS // length))
        for start in range(0, len(group), size):
            yield group[start : start + size]


def _config(model: nn.Module) -> Any:
    return getattr(model, "config", None)
