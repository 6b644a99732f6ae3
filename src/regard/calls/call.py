"""`AttentionCall`: one call of attention, in memory or on disk."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from regard.calls.check import NOT_COMPARED, Check
from regard.calls.outputs import OutputGradient, OutputProjection
from regard.matrix import AttentionMatrix, EffectMatrix, NormMatrix
from regard.matrix.derived import Effects
from regard.matrix.reduction import AnyReduction
from regard.matrix.scores import Scores
from regard.matrix.source import Source
from regard.matrix.view import View
from regard.matrix.weights import Weights
from regard.patterns import Pattern
from regard.versions import Overwritten

Kind = Literal["self", "cross"]
StackName = Literal["encoder", "decoder", "cross"]

_NUMBER = re.compile(r"(?:^|\.)(\d+)(?:\.|$)")


@dataclass(frozen=True, eq=False, kw_only=True)
class AttentionCall:
    """A call of attention: of a watched model, of a recording, or a matrix on its own.

    Attributes:
        index: its number among the calls of its run; −1 for a matrix on its own.
        module: path of the module.
        kind: "self" for self-attention, "cross" for cross-attention.
        layer: number of the layer; "" if its module has none.
        group: its stack, if the model has several.
        kernel: name of the kernel.
        batch: number of sequences.
        heads: number of query heads.
        key_heads: number of key heads.
        first_head: number of its first head; not 0 where tensor parallelism gives the heads before
            it to other processes.
        num_all_heads: number of query heads of all processes; None if this one has all.
        queries: number of queries.
        keys: number of keys.
        dtype: dtype of its tensors.
        pattern: which keys each query may attend to; None if only weights are known.
        check: difference between the kernel's output and A @ V.
        results: results of the reductions in `keep`, if any.
        problem: why the call has no matrix, if so.
        heads_known: whether batch and heads could be told apart. If not, materialised weights have
            1 head and `batch` counts both, and a kernel's axes are as it was given them.
        query_text: number of the text of its queries.
        key_text: number of the text of its keys.
        view: its matrix, not computed; None if it was not kept.
        gradient: gradient of its output; None if it was watched without effects.
        recorded_effects: the source of its effects, if they were recorded.
        projection: its output projection; None if it was watched without values, or not found.
    """

    index: int = -1
    module: str
    kind: Kind
    layer: str = ""
    group: str = ""
    kernel: str = ""
    batch: int = 0
    heads: int = 0
    key_heads: int = 0
    first_head: int = 0
    num_all_heads: int | None = None
    queries: int = 0
    keys: int = 0
    dtype: torch.dtype = torch.float32
    pattern: Pattern | None = None
    check: Check = NOT_COMPARED
    results: tuple[Any, ...] = ()
    problem: str = ""
    heads_known: bool = True
    query_text: int = 0
    key_text: int = 0
    view: View | None = field(default=None, repr=False)
    gradient: OutputGradient | None = field(default=None, repr=False)
    recorded_effects: Effects | None = field(default=None, repr=False)
    projection: OutputProjection | None = field(default=None, repr=False)

    @classmethod
    def of(
        cls, matrix: AttentionMatrix, module: str = "attention", kind: Kind = "self", **fields: Any
    ) -> "AttentionCall":
        """Make a call of a matrix; `fields` are further attributes."""
        view = matrix.view
        batch, heads, queries, keys = view.sizes
        fields.setdefault("layer", layer_index(module))
        return cls(
            module=module,
            kind=kind,
            batch=batch,
            heads=heads,
            key_heads=heads,
            queries=queries,
            keys=keys,
            dtype=matrix.dtype,
            pattern=matrix.pattern,
            view=view,
            **fields,
        )

    @property
    def source(self) -> Source | None:
        """The source of its matrix: scores or weights; None if it was not kept."""
        return None if self.view is None else self.view.source

    @property
    def matrix(self) -> AttentionMatrix:
        """The attention matrix, [batch, heads, queries, keys], not computed.

        Raises:
            ValueError: it was not kept, or the call was not understood.
            Overwritten: its queries or keys were modified in place since.
        """
        if self.view is None:
            raise self._missing()
        self._check()
        return AttentionMatrix.of(self.view)

    @property
    def effects(self) -> EffectMatrix:
        """Effect of each pair on the target whose `backward` was called, not computed.

        Raises:
            ValueError: the model was watched without `effects=True`, no gradient has come, or the
                call was not understood.
            Overwritten: the model has written over its queries, keys or values since.
        """
        if self.recorded_effects is not None and self.view is not None:
            return EffectMatrix.of(replace(self.view, source=self.recorded_effects))

        gradient = self.checked_gradient
        if gradient.problem_of_scores:
            raise ValueError(f"{self} has no effects: {gradient.problem_of_scores}")
        if gradient.total is None:
            raise ValueError(
                f"no gradient has come to {self}: call target.backward() on a number that depends "
                "on it"
            )
        assert self.view is not None
        self._check()
        self._refuse_if_overwritten(gradient.check_value)

        source = Effects(
            self.view.source,
            gradient.value,
            gradient.total,
            overwritten=gradient.overwritten,
            known_totals=gradient.row_totals if self.check.passed else None,
        )
        return EffectMatrix.of(replace(self.view, source=source))

    @property
    def has_effects(self) -> bool:
        """Whether `effects` are known: a gradient has come, or they were recorded."""
        if self.recorded_effects is not None:
            return True
        if self.view is None or self.gradient is None:
            return False
        if self.gradient.problem or self.gradient.problem_of_scores:
            return False
        return self.gradient.total is not None and self.check.passed is not False

    @property
    def norms(self) -> NormMatrix:
        """Weights times the norms of projected values, A[i, j] · ‖v_j W_O‖, not computed.

        The output projection W_O is the linear layer that got the output of the call, number for
        number.

        Raises:
            ValueError: the model was watched without `values=True`, no such layer was found, or the
                call was not understood.
            Overwritten: queries, keys, values or the projection were modified in place since.
        """
        value = self.value
        if self.projection is None:
            raise ValueError(
                f"{self} has no norms: its output did not go to one linear layer as it was"
            )
        return NormMatrix(self.matrix, value, self.projection.by_head)

    @property
    def checked_gradient(self) -> OutputGradient:
        """The gradient with respect to its output.

        Raises:
            ValueError: the model was watched without `effects=True`, or the call can have none.
        """
        if self.view is None:
            raise self._missing()
        if self.gradient is None:
            raise ValueError(f"{self} has no effects: only watch(model, effects=True) finds them")
        if self.gradient.problem:
            raise ValueError(f"{self} has no effects: {self.gradient.problem}")
        if self.check.passed is False:
            raise ValueError(f"{self} has no effects: its output is not A @ V ({self.check})")
        return self.gradient

    @property
    def scores(self) -> Scores:
        """The queries, keys, pattern and bias of the matrix.

        Raises:
            ValueError: they were not kept, or the call was not understood.
            Overwritten: they were modified in place since.
        """
        if not isinstance(self.source, Scores):
            raise self._missing()
        if self.view is not None and self.view.sizes != self.source.shape:
            raise ValueError(f"{self} is a slice of a matrix: use queries and keys of the whole")
        self._check()
        return self.source

    @property
    def query(self) -> Float[Tensor, "batch heads queries key_dim"]:
        """The queries."""
        return self.scores.whole_query

    @property
    def key(self) -> Float[Tensor, "batch key_heads keys key_dim"]:
        """The keys."""
        return self.scores.whole_key

    @property
    def value(self) -> Float[Tensor, "batch key_heads keys value_dim"]:
        """The values.

        Raises:
            ValueError: they were not kept.
            Overwritten: they were modified in place since.
        """
        source = self.source if isinstance(self.source, Weights) else self.scores
        value = source.value if isinstance(source, Weights) else source.call.value
        if value is None:
            raise ValueError(f"{self} has no values: only watch(model, values=True) keeps them")
        self._refuse_if_overwritten(source.check_value)
        return value

    def summarized(self, reductions: Sequence[AnyReduction]) -> "AttentionCall":
        """Return the call with the results of reductions instead of its tensors."""
        with torch.autocast(self.matrix.device.type, enabled=False):
            results = self.matrix.summarize(*reductions, progress=False)
        return replace(self, results=results, view=None)

    def failed(self, problem: str) -> "AttentionCall":
        """Return the call without its tensors, with a problem."""
        return replace(self, problem=problem, results=(), view=None)

    def _check(self) -> None:
        """Raise Overwritten if a tensor was modified in place."""
        assert self.source is not None
        self._refuse_if_overwritten(self.source.check)

    def _refuse_if_overwritten(self, check: Callable[[], None]) -> None:
        """Run a check, and name the call if it raises Overwritten."""
        try:
            check()
        except Overwritten as error:
            raise Overwritten(f"{self}: {error}") from None

    def _missing(self) -> ValueError:
        """Return the error that something was not kept."""
        if self.problem:
            return ValueError(f"{self} was not understood: {self.problem}")
        if self.source is not None:
            return ValueError(f"{self} has weights only, no queries and keys: use its matrix")
        return ValueError(
            f"{self} has no queries and keys: watch the model with "
            'keep="tensors", or use its results'
        )

    def sharded(self, first_head: int, num_all_heads: int) -> "AttentionCall":
        """Return the call as one of some heads, where other processes have the others."""
        view = None if self.view is None else replace(self.view, first_head=first_head)
        return replace(self, first_head=first_head, num_all_heads=num_all_heads, view=view)

    @property
    def head_numbers(self) -> range:
        """The numbers of its heads."""
        return range(self.first_head, self.first_head + self.heads)

    @property
    def heads_as_text(self) -> str:
        """The number of heads, and of key heads if different; "?" if unknown."""
        if not self.heads_known:
            return "?"
        if self.num_all_heads is not None:
            return f"{self.first_head}–{self.head_numbers[-1]} of {self.num_all_heads}"
        return str(self.heads) if self.heads == self.key_heads else f"{self.heads}/{self.key_heads}"

    def __str__(self) -> str:
        return f"call {self.index} ({self.module or 'the model'})"

    def __repr__(self) -> str:
        kernel = f", {self.kernel}, {self.check}" if self.kernel else ""
        sizes = f"{self.heads_as_text} heads, {self.queries} × {self.keys}"
        return f"AttentionCall({self.index}, {self.module!r}, {self.kind}, {sizes}{kernel})"


def layer_index(path: str) -> str:
    """Return the layer number in the path of a module, "" if there is none.

    >>> layer_index("model.layers.5.self_attn")
    '5'
    """
    number = _NUMBER.search(path)
    return number[1] if number else ""


def layer_names(modules: Iterable[str]) -> dict[str, int] | dict[str, str]:
    """Return what each module is called: by the number of its layer, if that tells all apart."""
    layers = {module: layer_index(module) for module in modules}
    if "" in layers.values() or len(set(layers.values())) < len(layers):
        return {module: module for module in layers}
    return {module: int(layer) for module, layer in layers.items()}


def stack_of(module: str, kind: str) -> StackName:
    """Return the stack of a call in an encoder–decoder.

    >>> stack_of("model.encoder.layers.0.self_attn", "self")
    'encoder'
    >>> stack_of("model.decoder.layers.0.encoder_attn", "cross")
    'cross'
    """
    if kind == "cross":
        return "cross"
    return "encoder" if "encoder" in module.split(".") else "decoder"
