"""Measure every head of a model over a corpus."""

from regard.atlas.atlas import Atlas
from regard.atlas.loader import Loader, pretrained
from regard.atlas.survey import survey

open = Atlas

# Without `open`: `import *` would shadow the builtin.
__all__ = ["Atlas", "Loader", "pretrained", "survey"]
