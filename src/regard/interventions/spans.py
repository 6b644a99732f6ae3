"""`spans`: the tokens of a part of a text."""

import re
from typing import Any


def spans(tokenizer: Any, text: str, part: str, nth: int | None = None) -> list[range]:
    """Return the positions of the tokens of a part of a text, wherever the text has it.

        regard.spans(tokenizer, "A cat, a mat, a cat.", "cat")      # [range(1, 2), range(7, 8)]

    They are counted in `tokenizer(text)`, special tokens included. A token belongs to the part if
    it has one of its characters.

    Args:
        tokenizer: a fast tokenizer of transformers, which tells the characters of each token.
        text: the text, as it is passed to the tokenizer: of a chat, with its template applied.
        part: the part.
        nth: which occurrence, counted from 0; by default all, which do not overlap.

    Raises:
        TypeError: the tokenizer does not tell the characters of tokens.
        ValueError: the text does not have the part, or not as often, or the tokens don't.
    """
    if not getattr(tokenizer, "is_fast", False):
        raise TypeError(
            "tokenizer must be a fast one of transformers, which tells the characters of each "
            f"token, got {type(tokenizer).__name__}"
        )
    # White space has no tokens of its own in many vocabularies.
    starts = [match.start() for match in re.finditer(re.escape(part), text)]
    if not part.strip() or not starts:
        raise ValueError(f"part: {part!r} is not in the text")
    if nth is not None:
        if not 0 <= nth < len(starts):
            raise ValueError(f"nth: {part!r} is {len(starts)} times in the text, got {nth}")
        starts = [starts[nth]]

    offsets: list[tuple[int, int]] = tokenizer(text, return_offsets_mapping=True)["offset_mapping"]
    found: list[range] = []
    for start in starts:
        stop = start + len(part)
        tokens = [
            position
            for position, (first, behind) in enumerate(offsets)
            if max(first, start) < min(behind, stop)
        ]
        if not tokens or offsets[tokens[-1]][1] < start + len(part.rstrip()):
            raise ValueError(f"part: the tokens end before {part!r}, the tokenizer truncates")
        found.append(range(tokens[0], tokens[-1] + 1))
    return found
