"""The order of passages, and which of them are listed."""

from jaxtyping import Float
from torch import Tensor

from regard.attribution.hidden import HiddenPassages


def best_known(
    scores: Float[Tensor, "passages"], checked: HiddenPassages | None
) -> Float[Tensor, "passages"]:
    """Return what the answer loses without each passage: measured where it was hidden, else scored.

    Mean weights are no losses, so scores by attention are returned as they are.
    """
    if checked is None or checked.how == "attention":
        return scores
    found = scores.clone()
    found[checked.passages] = checked.exact.to(found)
    return found


def listed(values: Float[Tensor, "passages"], count: int) -> list[int]:
    """Return the numbers of the passages with the largest values of either sign, sorted by value.

    The strongest supporter and the strongest opponent are always among two or more.
    """
    by_size = values.abs().argsort(descending=True, stable=True).tolist()
    ends = [int(values.argmax()), int(values.argmin())] if count > 1 else []
    chosen = list(dict.fromkeys([*ends, *by_size]))[:count]
    return sorted(chosen, key=lambda number: (-float(values[number]), number))


def left_out(values: Float[Tensor, "passages"], shown: list[int]) -> str:
    """Say how many passages are not listed, and their values; "" if all are."""
    others = [value for number, value in enumerate(values.tolist()) if number not in set(shown)]
    if not others:
        return ""
    if len(others) == 1:
        return f"1 other passage, {others[0]:+.3f}"
    return f"{len(others)} other passages, {min(others):+.3f} to {max(others):+.3f}"
