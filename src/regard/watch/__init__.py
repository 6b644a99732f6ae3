"""See a running model: its attention, exactly, with the kernels that it has.

    with regard.watch(model) as seen:
        model(**inputs)
    seen[5].matrix

`watch` opens the eyes, `Seen` holds what they saw, and each `Call` in it has an `AttentionMatrix`.
"""

from regard.versions import Overwritten
from regard.watch.call import Call
from regard.watch.check import Check
from regard.watch.seen import Seen
from regard.watch.watch import watch

__all__ = ["Call", "Check", "Overwritten", "Seen", "watch"]
