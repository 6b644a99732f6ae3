"""Results of `watch`: the calls of a model, their effects, and the requests of an engine."""

from collections.abc import Iterator, Mapping, Sequence
from typing import overload

from torch import Tensor, distributed

from regard.calls.call import AttentionCall, layer_names
from regard.calls.outputs import HeadEffects, by_layer
from regard.capture import table
from regard.capture.gathered import gathered
from regard.capture.stitched import stitched


class Seen(Sequence[AttentionCall]):
    """The watched calls of a model, in order.

    It prints as a table. `seen[5]` is a call, and so is `seen["model.layers.5.self_attn"]` if that
    module made one.

    Args:
        calls: the calls.
    """

    def __init__(self, calls: list[AttentionCall]) -> None:
        self._calls = calls

    def __len__(self) -> int:
        return len(self._calls)

    @overload
    def __getitem__(self, which: int | str) -> AttentionCall: ...
    @overload
    def __getitem__(self, which: slice) -> "Seen": ...
    def __getitem__(self, which: int | str | slice) -> "AttentionCall | Seen":
        """Return a call by its number or module path, or a slice of calls.

        Raises:
            IndexError: there is no call of that number.
            KeyError: the module made no call, or several.
        """
        if isinstance(which, slice):
            return Seen(self._calls[which])
        if isinstance(which, int):
            if not -len(self) <= which < len(self):
                if not len(self):
                    raise IndexError("there are no calls yet: call the model inside the block")
                raise IndexError(f"there are {len(self)} calls, counted from 0, got number {which}")
            return self._calls[which]

        calls = [call for call in self._calls if call.module == which]
        if len(calls) == 1:
            return calls[0]
        if not calls:
            modules = list(dict.fromkeys(call.module for call in self._calls))
            raise KeyError(f"{which!r} made no calls; these modules did: {_listed(modules)}")
        numbers = _listed([str(call.index) for call in calls])
        raise KeyError(
            f"{which} made {len(calls)} calls ({numbers}): choose one by number, or join those of "
            "a generated text with stitched()"
        )

    def verify(self) -> None:
        """Raise unless every call was compared with the kernel's output, and agrees.

        Raises:
            RuntimeError: A @ V differs from the kernel's output, a row has NaN, or a call was not
                understood or not compared.
        """
        wrong = [call for call in self._calls if table.failed(call)]
        if wrong:
            first, more = wrong[0], len(wrong) - 1
            others = f"; {more} other calls failed too" if more else ""
            raise RuntimeError(f"{first}, computed by {first.kernel}, {_fault(first)}{others}")
        unknown = [call for call in self._calls if call.check.passed is None]
        if unknown:
            reasons = ", ".join(dict.fromkeys(call.check.reason for call in unknown))
            raise RuntimeError(
                f"{len(unknown)} of {len(self._calls)} calls were not compared with their kernel's "
                f"output, the first is {unknown[0]}: {reasons}"
            )

    @property
    def effects(self) -> "SeenEffects":
        """The effects of the calls, with `effects=True`."""
        return SeenEffects(self._calls)

    def stitched(self) -> "Seen":
        """Join the calls of a text that was generated with a cache, prompt and steps.

        Returns:
            One call for each module and text. Its matrix has a row for each input token, so none
            for the last generated token.

        Raises:
            ValueError: queries and keys were not kept, the cache was reordered, as by beam search,
                or cross-attention was watched without the decoder's self-attention.
        """
        return Seen(stitched(self._calls))

    def gather(self, group: "distributed.ProcessGroup | None" = None) -> "Seen":
        """Bring the heads of a tensor-parallel model together, on all ranks.

            with regard.watch(model, keep=[Entropy(), Pool(512)]) as seen:
                model(**inputs)
            seen.gather()[5].results[0].entropy     # [batch, heads, queries], of all heads

        All ranks of the group call it, and have run the model on the same inputs. Without `keep`,
        queries and keys of all heads come to all ranks: `regard.save` writes them on one.

        Args:
            group: the ranks that share the heads of the model; all by default.

        Returns:
            The same calls, with all heads in order; without effects.

        Raises:
            RuntimeError: torch.distributed is not initialized.
            ValueError: the ranks have not seen the same calls, or don't have each head once; or a
                call has a bias for each of its heads, or was written over.
        """
        return Seen(gathered(self._calls, group))

    def __repr__(self) -> str:
        return table.as_text(self._calls)

    def _repr_html_(self) -> str:
        return table.as_html(self._calls)


class SeenEffects:
    """The effects of all calls of a model, watched with `effects=True`.

    Args:
        calls: the calls.
    """

    def __init__(self, calls: Sequence[AttentionCall]) -> None:
        self._calls = calls

    def heads(self) -> HeadEffects:
        """Return the effect of each head on the target: Σ gradient · output over all tokens.

        A linear prediction of how much the target falls if a head's output is set to zero;
        `regard.interventions.verify` compares it with the true change. Calls without influence on
        the target have 0; calls of one module are added.

        Raises:
            ValueError: there are no gradients, or a call was not understood.
        """
        gradients = [call.checked_gradient for call in self._calls]
        if all(gradient.total is None for gradient in gradients):
            raise ValueError(
                "there are no gradients: call target.backward() on a number that depends on the "
                "watched calls"
            )
        rows: dict[str, Tensor] = {}
        for call, gradient in zip(self._calls, gradients, strict=True):
            if not call.heads_known:
                raise ValueError(f"the heads of {call} are unknown: exclude it with where=")
            row = gradient.by_head().cpu()
            rows[call.module] = rows[call.module] + row if call.module in rows else row
        names = layer_names(rows)
        return by_layer({names[module]: row for module, row in rows.items()}, "gradient")


class SeenRequests(Mapping[str, Seen]):
    """The finished requests of a watched engine by id, in order.

    `seen.requests["3"]` is a `Seen` with one call for each layer. The matrix of a call has a column
    for each token except the last generated one, which was never an input, and a row for each of
    these except those of a cached prefix.
    """

    def __init__(self) -> None:
        self._requests: dict[str, Seen] = {}

    def add(self, name: str, calls: list[AttentionCall]) -> None:
        """Add a finished request."""
        self._requests[name] = Seen(calls)

    def __getitem__(self, name: str) -> Seen:
        """Return the calls of a request.

        Raises:
            KeyError: there is no such request, or it is not finished.
        """
        if name not in self._requests:
            finished = _listed([*map(repr, self)]) or "none"
            raise KeyError(
                f"there is no finished request {name!r}, only {finished}. Ids are "
                "output.request_id; all requests are finished after the block"
            )
        return self._requests[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._requests)

    def __len__(self) -> int:
        return len(self._requests)

    def __repr__(self) -> str:
        lines = [f"{len(self):,} request{'' if len(self) == 1 else 's'}"]
        for name, seen in list(self.items())[: table.MOST]:
            first = seen[0]
            wrong = sum(table.failed(call) for call in seen)
            state = (
                f"{wrong} of them wrong"
                if wrong
                else f"check {max(call.check.gap or 0.0 for call in seen):.0e}"
            )
            lines.append(f"{name}: {len(seen)} calls, {first.queries:,} × {first.keys:,}, {state}")
        if len(self) > table.MOST:
            lines.append(f"⋮ {len(self) - table.MOST:,} more")
        return "\n".join(lines)


class SeenEngine:
    """The watched requests of an engine.

    Attributes:
        requests: the finished requests by id.
    """

    def __init__(self) -> None:
        self.requests = SeenRequests()

    def verify(self) -> None:
        """Raise unless every call was compared with the kernel's output, and agrees.

        Raises:
            RuntimeError: as `Seen.verify`, with the id of the request.
        """
        for name, seen in self.requests.items():
            try:
                seen.verify()
            except RuntimeError as error:
                raise RuntimeError(f"request {name}: {error}") from None

    def __repr__(self) -> str:
        return repr(self.requests)


def _fault(call: AttentionCall) -> str:
    """Describe the failure of a call."""
    if call.problem:
        return f"was not understood: {call.problem}"
    if call.check.is_nan:
        return "returned NaN in a compared row"
    return (
        f"differs from A @ V by {call.check.gap:.1e} of the values' size, where rounding explains "
        f"{call.check.tolerance:.0e}"
    )


def _listed(names: Sequence[str]) -> str:
    """Return the first names in a message."""
    return ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
