"""Settings of the whole test run.

``HYPOTHESIS_PROFILE`` chooses how hard the laws are tried: ``default``, ``ci`` (the same examples
in every run; chosen by itself where ``CI`` is set) or ``thorough``.
"""

import os

from hypothesis import settings

settings.register_profile("default", deadline=None, max_examples=50)
settings.register_profile("ci", settings.get_profile("default"), derandomize=True, database=None)
settings.register_profile("thorough", settings.get_profile("default"), max_examples=1000)
settings.load_profile(
    os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "default")
)
