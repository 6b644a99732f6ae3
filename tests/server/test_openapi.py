"""Requests that are made up from the server's own description: each is answered as described."""

from contextlib import suppress
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import negative_data_rejection

from tests.server.made import Made
from tests.server.running import Running

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]

SIZES = {"level": 4, "x": 5, "y": 5, "call": 3, "text": 2, "block": 50}
SIZES |= dict.fromkeys(("key", "query", "token"), 700)
"""So that most numbers name something that is there."""


# In an address all is text: a number where a text is wanted, or two where one is, can't be told.
@pytest.mark.parametrize("mode", list(GenerationMode))
def test_as_described(running: Running, book: Made, mode: GenerationMode) -> None:
    described: Any = schemathesis.openapi.from_url(f"{running.url}/openapi.json")
    asked: set[str] = set()

    def try_operation(operation: Any) -> None:
        @given(case=operation.as_strategy(generation_mode=mode))
        @settings(suppress_health_check=list(HealthCheck))
        def try_case(case: Any) -> None:
            places = case.path_parameters or {}
            if isinstance(places.get("digest"), str) and len(places["digest"]) == 16:
                places["digest"] = book.digest
            for name, size in SIZES.items():
                if isinstance(places.get(name), int) and places[name] >= size:
                    places[name] %= size
            case.call_and_validate(excluded_checks=[negative_data_rejection])
            asked.add(operation.label)

        # What takes no parameters can't be asked wrongly.
        with suppress(Unsatisfiable):
            try_case()

    for found in described.get_all_operations():
        try_operation(found.ok())
    assert len(asked) >= 12
    assert running.get("/recordings.json").status_code == 200
