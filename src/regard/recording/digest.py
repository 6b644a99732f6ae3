"""The digest of a recording: its content address."""

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
        description: its `zarr.json`: the facts of the recording and its calls, and the metadata
            of all arrays.
        sums: the SHA-256 of all chunks; see `files`.
    """
    said = {**description["attributes"][ATTRIBUTE], "digest": ""}
    content = [said, description["consolidated_metadata"]["metadata"]]
    described = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(described.encode() + b"\n" + sums).hexdigest()[:_DIGITS]


def digests_without_sums(facts: Facts, calls: Sequence[CallFacts]) -> set[str]:
    """Return the valid digests of a recording of Regard 0.1.

    They cover the facts of 0.1 only, without later fields. There are two, because versions of
    pydantic differ in writing 1e16 or 1e+16.
    """
    said = [facts.model_copy(update={"digest": ""}), *calls]
    content = "\n".join(one.model_dump_json(exclude_unset=True) for one in said)
    written = {
        content,
        re.sub(r"(?<=\d)e\+(?=\d)", "e", content),
        re.sub(r"(?<=\d)e(?=\d)", "e+", content),
    }
    return {hashlib.sha256(one.encode()).hexdigest()[:_DIGITS] for one in written}
