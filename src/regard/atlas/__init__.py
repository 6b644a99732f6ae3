"""What every head of a model does, over a corpus."""

from regard.atlas.atlas import Atlas
from regard.atlas.loader import Loader, pretrained
from regard.atlas.survey import survey

open = Atlas

# Without `open`, which would hide the builtin after an import of everything.
__all__ = ["Atlas", "Loader", "pretrained", "survey"]
