"""The target of effects: the logit of the next token."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jaxtyping import Float
from torch import Tensor

from regard.attribution.decoder import check_decoder
from regard.cli.loading import Loaded


@dataclass(frozen=True)
class NextToken:
    """The logit of a token that may come next, or its difference to another.

    Attributes:
        of: the token.
        against: the other token.
    """

    of: str
    against: str | None = None

    def prepared(self, loaded: Loaded, inputs: dict[str, Any]) -> Callable[[], Float[Tensor, ""]]:
        """Return a function that runs a model and returns the logit.

        Raises:
            ValueError: a text is not one known token, or the model is no decoder.
        """
        ids = [_id(loaded, text) for text in (self.of, self.against) if text is not None]
        check_decoder(loaded.model, inputs["input_ids"])
        # Outputs of attention need gradients, parameters don't.
        loaded.model.requires_grad_(False)

        def run() -> Float[Tensor, ""]:
            logits = loaded.model(**inputs, use_cache=False).logits[0, -1]
            return logits[ids[0]] - (logits[ids[1]] if len(ids) > 1 else 0.0)

        return run

    def __str__(self) -> str:
        against = "" if self.against is None else f" minus that of “{self.against}”"
        return f"the logit of “{self.of}”{against}"


def next_token(of: str | None, against: str | None) -> NextToken | None:
    """Return the target that options ask for; None if they ask for no effects.

    Raises:
        ValueError: there is only a token to compare with.
    """
    if of is None and against is not None:
        raise ValueError(f"--against needs --effect-of, got --against {against!r} alone")
    return None if of is None else NextToken(of, against)


def _id(loaded: Loaded, text: str) -> int:
    ids = loaded.prepare(text, add_special_tokens=False)["input_ids"]
    if len(ids) != 1:
        pieces = ", ".join(map(repr, loaded.prepare.convert_ids_to_tokens(ids)))
        raise ValueError(
            f"--effect-of and --against must be one token each, with its space; {text!r} is "
            f"{len(ids)}: {pieces}"
        )
    unknown = loaded.prepare.unk_token
    if ids[0] == loaded.prepare.unk_token_id and text != unknown:
        raise ValueError(f"{loaded.name} has no token {text!r}, only {unknown!r} for unknown ones")
    return int(ids[0])
