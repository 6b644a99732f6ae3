"""All that is asked of one type."""

import copy
import time
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

import regard
import regard.hf
from regard.matrix.weights import Weights
from zoo import compare, effects, oracle, sizes, types
from zoo.hints import HINTS, Hint
from zoo.inputs import InputMaker, Inputs
from zoo.result import Result
from zoo.shrink import Shrinker
from zoo.weights import strengthen

SIDES = ("none", "right", "left")
NO_ATTENTION = "no attention was seen"


def small_config(name: str, more: Mapping[str, Any] | None = None) -> Any:
    """Return a small configuration of a type, with more settings that are given like hints."""
    hint = HINTS.get(name, Hint())
    made = types.config_class(name)
    default = hint.config["*"]() if "*" in hint.config else made()
    hints = {**(more or {}), **hint.config}
    return Shrinker({k: v for k, v in hints.items() if k != "*"}).shrink(default)


def made(name: str, config: Any, attention: str | None = None, gain: float | None = None) -> Any:
    """Make a model of a type, the same at each call but for its attention."""
    hint = HINTS.get(name, Hint())
    chosen = {} if attention is None else {"attn_implementation": attention}
    torch.manual_seed(3)
    model_class = types.model_class(name, hint.model)
    model = model_class._from_config(copy.deepcopy(config), **chosen).eval()
    strengthen(model, hint.gain if gain is None else gain)
    return model


def run(model: nn.Module, inputs: Inputs, **more: Any) -> Any:
    """Call a model, with the same chance at each call."""
    torch.manual_seed(5)
    return model(**copy.deepcopy(inputs), **more)


def examine(name: str) -> Result:
    """Make a type small, run it, watch it and compare."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    from transformers.utils import logging

    logging.set_verbosity_error()
    started = time.monotonic()
    result = Result(name)
    with torch.no_grad():
        _Examination(name, result).all()
    result.seconds = round(time.monotonic() - started, 1)
    return result


class _Examination:
    def __init__(self, name: str, result: Result) -> None:
        self.name, self.result = name, result
        self.gain = HINTS.get(name, Hint()).gain
        self.eager: Any = None
        self.ours: Any = None

    def all(self) -> None:
        result = self.result
        try:
            result.model = types.model_class(self.name, HINTS.get(self.name, Hint()).model).__name__
        except LookupError as error:
            result.verdict = "part"
            result.reasons.append(str(error))
            return
        except Exception as error:  # noqa: BLE001
            self._not_configured(error)
            return
        try:
            self._make()
        except Exception as error:  # noqa: BLE001
            self._not_configured(error)
            return
        sides = SIDES if self.maker.takes_padding else SIDES[:1]
        for side in sides:
            self._side(side)
        if not result.verdict:
            self._conclude()

    def _not_configured(self, error: Exception) -> None:
        import traceback

        self.result.verdict = "cannot be configured"
        self.result.reasons.append(_said(error))
        last = traceback.extract_tb(error.__traceback__)[-1]
        self.result.notes.append(f"{last.filename.rpartition('site-packages/')[2]}:{last.lineno}")

    def _make(self) -> None:
        """Make a model, and what makes inputs that it takes."""
        # Some do not share keys among heads, or do so with one of their kernels only.
        failed: Exception | None = None
        for more in ({}, {"*.num_key_value_heads": sizes.HEADS}):
            self.result.notes.clear()
            try:
                self.config = small_config(self.name, more)
                self.model = made(self.name, self.config)
                self.maker = self._maker()
            except Exception as error:  # noqa: BLE001
                failed = failed or error
                continue
            self._others()
            if self.eager is not None or more:
                return
        assert failed is not None
        raise failed

    def _maker(self) -> InputMaker:
        """Return what makes inputs that the model takes and makes something finite of."""
        hint = HINTS.get(self.name, Hint())
        maker = InputMaker(self.model, hint.inputs, hint.omit)
        try:
            run(self.model, maker.make())
        except Exception as error:  # noqa: BLE001
            maker = self._other_maker(maker, error)
        for gain in (self.gain, 0.7 * self.gain, 0.4 * self.gain):
            if gain != self.gain:
                self.gain = gain
                self.model = made(self.name, self.config, gain=gain)
                maker = maker.of(self.model)
            output = run(self.model, maker.make())
            if all(
                t.isfinite().all() for _, t in compare.tensors_in(output) if t.is_floating_point()
            ):
                return maker
        self.result.notes.append("outputs are not finite")
        return maker

    def _other_maker(self, maker: InputMaker, failed: Exception) -> InputMaker:
        for words, other in maker.others():
            try:
                run(self.model, other.make())
            except Exception:  # noqa: BLE001
                continue
            if words:
                self.result.notes.append(f"{words}: {_said(failed)}")
            return other
        raise failed

    def _others(self) -> None:
        """Make the same model with eager attention, and with ours."""
        try:
            eager = made(self.name, self.config, "eager", self.gain)
            run(eager, self.maker.make())
            self.eager = eager
        except Exception as error:  # noqa: BLE001
            self.result.notes.append(f"no eager attention: {_said(error)}")
            return
        regard.hf.register()
        try:
            self.ours = made(self.name, self.config, "regard", self.gain)
        except Exception as error:  # noqa: BLE001
            self.result.ours = f"refused: {_said(error)}"

    def _side(self, side: str) -> None:
        inputs = self.maker.make(side)
        try:
            run(self.model, inputs)
        except Exception as error:  # noqa: BLE001
            self.result.notes.append(f"padded on the {side} it fails: {_said(error)}")
            return
        witness = self._witness(side, self.eager or self.model, inputs)
        if self.eager is None or _is_eager(self.model):
            self._watch(f"own, {side}", self.model, inputs, [witness])
        else:
            # By the documentation of PyTorch's own kernels.
            own = self._witness(side, self.model, inputs)
            own.returned.clear()
            self._watch(f"own, {side}", self.model, inputs, [own, witness])
            self._watch(f"eager, {side}", self.eager, inputs, [witness])
        if self.ours is not None:
            self._run_ours(side, inputs)
        self._effects(side, inputs)

    def _effects(self, side: str, inputs: Inputs) -> None:
        """Compare norms, effects and ablations, with its own attention and with eager."""
        masks = self.maker.masks(inputs)
        by_eager = self.eager or self.model
        eager = effects.softmaxes(by_eager, lambda: run(by_eager, inputs), masks)
        models = {"own": self.model}
        if by_eager is not self.model and not _is_eager(self.model):
            models["eager"] = by_eager
        expected = run(by_eager, inputs)
        for attention, model in models.items():
            # Some mean something else by a mask than their kernels do.
            gap = compare.output_gap(run(model, inputs), expected, masks)
            known = eager if gap <= compare.OUTPUTS_WITHIN else ()
            found = effects.faults(model, lambda model=model: run(model, inputs), masks, known)
            self.result.wrong += [f"{attention}, {side}: {fault}" for fault in found.wrong]
            self.result.effects += found.compared

    def _witness(self, side: str, model: nn.Module, inputs: Inputs) -> oracle.Witness:
        witness = oracle.Witness()
        try:
            with oracle.looking_on(model, witness.asked):
                run(model, inputs)
            output = run(model, inputs, output_attentions=True)
            witness.returned = oracle.returned_weights(output)
        except Exception as error:  # noqa: BLE001
            _add(self.result.notes, f"{side}: no output_attentions: {_said(error)}")
        return witness

    def _watch(
        self,
        label: str,
        model: nn.Module,
        inputs: Inputs,
        witnesses: Sequence[oracle.Witness],
    ) -> None:
        result = self.result
        before = run(model, inputs)
        if compare.changed(before, run(model, inputs)):
            result.notes.append(f"{label}: not the same when run again")
        seen: Any = ()
        try:
            with regard.watch(model) as seen:
                after = run(model, inputs)
        except RuntimeError as error:
            if not str(error).startswith(NO_ATTENTION):
                result.wrong.append(f"{label}: raised {_said(error)}")
                return
        except Exception as error:  # noqa: BLE001
            result.wrong.append(f"{label}: raised {_said(error)}")
            return
        different = compare.changed(before, after)
        if different:
            result.wrong.append(f"{label}: outputs changed: {', '.join(different[:3])}")
        self._calls(label, list(seen), seen, witnesses, inputs)

    def _calls(
        self,
        label: str,
        calls: Sequence[Any],
        seen: Any,
        witnesses: Sequence[oracle.Witness],
        inputs: Inputs,
    ) -> None:
        result = self.result
        if label == "own, none":
            result.calls = len(calls)
            result.kernels = sorted({call.kernel for call in calls})
            result.weights_kept = sum(isinstance(call.source, Weights) for call in calls)
        comparison = compare.Comparison(calls, witnesses, self.maker.masks(inputs))
        sharp: list[float] = []
        counts = {"exact": 0, "understood": 0, "refused": 0, "unknown": 0, "failed": 0}
        for number, call in enumerate(calls):
            if call.problem:
                counts["refused"] += 1
                _add(result.reasons, f"{_general(call.module)}: {call.problem}")
                continue
            difference = comparison.gaps[number]
            if comparison.shapes[number] and difference is None:
                seen_as = f"{call.batch} × {call.heads} × {call.queries} × {call.keys}"
                said = f"seen as {seen_as}, the model says {comparison.shapes[number]}"
                _add(result.notes, f"{_general(call.module)}: {said}")
            if call.keys > 1:
                sharp.append(call.matrix.dense().amax(dim=-1).mean().item())
            if not call.heads_known:
                counts["unknown"] += 1
                _add(result.reasons, f"{_general(call.module)}: heads unknown")
            elif call.check.passed is False:
                counts["failed"] += 1
                _add(result.reasons, f"{_general(call.module)}: check {call.check}")
            elif difference is None:
                counts["understood"] += 1
            elif not comparison.differs[number]:
                counts["exact"] += 1
                result.worst = max(result.worst, difference)
            else:
                result.wrong.append(
                    f"{label}: {call.module} ({call.kernel}) differs by {difference:.1e}"
                )
        for note in comparison.notes:
            _add(result.notes, note)
        for unseen in dict.fromkeys(comparison.unseen):
            result.wrong.append(f"{label}: not seen: {unseen}")
        if not comparison.order:
            result.wrong.append(f"{label}: in another order than the model returns")
        if sharp and label == "own, none":
            result.sharpness = round(sum(sharp) / len(sharp), 3)
        result.exact += counts["exact"]
        result.understood += counts["understood"]
        result.refused += counts["refused"] + counts["failed"]
        result.unknown += counts["unknown"]
        if calls:
            said = ""
            try:
                seen.verify()
            except RuntimeError as error:
                said = _said(error)
            if bool(said) != bool(counts["refused"] or counts["failed"]):
                result.wrong.append(f"{label}: verify() says {said!r} of {counts}")
        kinds = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
        result.runs.append(f"{label}: {kinds or 'nothing'}")

    def _run_ours(self, side: str, inputs: Inputs) -> None:
        """Run it with our attention in place of its own."""
        result = self.result
        try:
            output = run(self.ours, inputs)
        except Exception as error:  # noqa: BLE001
            result.ours = f"refused: {_said(error)}"
            return
        expected = run(self.eager, inputs)
        masks = self.maker.masks(inputs)
        difference = compare.output_gap(output, expected, masks)
        if difference > compare.OUTPUTS_WITHIN:
            alike = compare.output_gap(output, run(self.model, inputs), masks)
            if alike > compare.OUTPUTS_WITHIN:
                result.wrong.append(
                    f'{side}: outputs with "regard" differ by {difference:.1e} from eager, by '
                    f"{alike:.1e} from its own attention"
                )
                return
        result.ours = result.ours or "same outputs"

    def _conclude(self) -> None:
        result = self.result
        if result.wrong:
            result.verdict = "WRONG"
        elif result.refused:
            result.verdict = "refused"
        elif result.unknown:
            result.verdict = "heads unknown"
        elif result.understood:
            result.verdict = "understood"
        elif result.exact:
            result.verdict = "exact"
        else:
            result.verdict = "no attention"


def _is_eager(model: nn.Module) -> bool:
    """Say whether all parts of a model have eager attention."""
    configs = (getattr(part, "config", None) for part in model.modules())
    return all(getattr(config, "_attn_implementation", "eager") == "eager" for config in configs)


def _add(reasons: list[str], reason: str) -> None:
    if reason not in reasons:
        reasons.append(reason)


def _general(path: str) -> str:
    """Return a module's path without the numbers of layers."""
    return ".".join("*" if part.isdecimal() else part for part in path.split("."))


def _said(error: BaseException) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' / '.join(lines[:3])[:240]}"
