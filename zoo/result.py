"""What was found out about a type, as a line of JSON."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

CLASSES = {
    "exact": "every call is what the model itself says",
    "understood": "every call was checked by Regard; of some the model returns no weights",
    "heads unknown": "sequences and heads of some calls could not be told apart, which is said",
    "refused": "some calls can't be looked into, which is said with the reason",
    "no attention": "no attention was seen",
    "cannot be configured": "no small model of it was made",
    "part": "it is a part of another type",
    "WRONG": "something differs and nothing says so",
}


@dataclass
class Result:
    """What was found out about a type.

    Attributes:
        name: the type.
        verdict: one of `CLASSES`.
        model: the name of its class.
        wrong: what differs.
        reasons: why calls are refused, or why there is no model.
        notes: what else there is to say.
        calls: the number of calls without padding, with its own attention.
        kernels: what computed them.
        weights_kept: the number of calls that are known by their weights alone.
        exact, understood, refused, unknown: the number of calls over all runs.
        effects: the number of calls over all runs whose effects were compared with gradients of
            scores.
        worst: the largest difference of a weight.
        sharpness: the mean of the largest weight of a row, over all calls with several keys.
        ours: what `attn_implementation="regard"` did.
        seconds: how long it took.
    """

    name: str
    verdict: str = ""
    model: str = ""
    wrong: list[str] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    runs: list[str] = field(default_factory=list)
    calls: int = 0
    kernels: list[str] = field(default_factory=list)
    weights_kept: int = 0
    exact: int = 0
    understood: int = 0
    refused: int = 0
    unknown: int = 0
    effects: int = 0
    worst: float = 0.0
    sharpness: float = 0.0
    ours: str = ""
    seconds: float = 0.0

    def line(self) -> str:
        """Return it as a line of JSON."""
        return json.dumps(asdict(self), ensure_ascii=False)


def read(path: Path) -> dict[str, Result]:
    """Return the latest result of each type that a file has."""
    if not path.exists():
        return {}
    found: dict[str, Result] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        fields: dict[str, Any] = json.loads(line)
        found[fields["name"]] = Result(**fields)
    return found
