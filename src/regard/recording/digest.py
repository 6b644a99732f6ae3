"""The digest of a recording: the content address of all that is in it."""

import hashlib
import json
import re
from collections.abc import Sequence
from typing import Any

from regard.recording.schema import ATTRIBUTE, CallFacts, Facts

_DIGITS = 16


def digest_of(description: dict[str, Any], sums: bytes) -> str:
    """Return the digest of a recording.

    Args:
        description: its `zarr.json`: what the recording and each call say of themselves, and the
            metadata of all arrays.
        sums: the SHA-256 of all chunks of all arrays; see `files`.
    """
    said = {**description["attributes"][ATTRIBUTE], "digest": ""}
    content = [said, description["consolidated_metadata"]["metadata"]]
    described = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(described.encode() + b"\n" + sums).hexdigest()[:_DIGITS]


def digests_without_sums(facts: Facts, calls: Sequence[CallFacts]) -> set[str]:
    """Return the digests that a recording of Regard up to 0.1 may have.

    It is of what is said of the recording and of its calls, not of what later versions say too.
    Those who wrote it and those who read it may have versions of pydantic that write large numbers
    as 1e16 and as 1e+16.
    """
    said = [facts.model_copy(update={"digest": ""}), *calls]
    content = "\n".join(one.model_dump_json(exclude_unset=True) for one in said)
    written = {
        content,
        re.sub(r"(?<=\d)e\+(?=\d)", "e", content),
        re.sub(r"(?<=\d)e(?=\d)", "e+", content),
    }
    return {hashlib.sha256(one.encode()).hexdigest()[:_DIGITS] for one in written}
