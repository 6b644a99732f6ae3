"""`Seen`: the watched calls of a model."""

from collections.abc import Sequence
from typing import overload

from torch import distributed

from regard.calls.call import AttentionCall
from regard.capture import table
from regard.capture.gathered import gathered
from regard.capture.seen_effects import SeenEffects
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
        found = [call for call in self._calls if call.module == which]
        if len(found) == 1:
            return found[0]
        if not found:
            modules = list(dict.fromkeys(call.module for call in self._calls))
            some = ", ".join(modules[:3]) + (", …" if len(modules) > 3 else "")
            raise KeyError(f"{which!r} made no calls; these modules did: {some}")
        numbers = ", ".join(str(call.index) for call in found[:3])
        numbers += ", …" if len(found) > 3 else ""
        raise KeyError(
            f"{which} made {len(found)} calls ({numbers}): choose one by number, or join those of "
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
    def effects(self) -> SeenEffects:
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
