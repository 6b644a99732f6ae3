"""What every head of a model does, over a corpus."""

from regard.atlas.atlas import Atlas
from regard.atlas.atlas import Atlas as open
from regard.atlas.loader import Loader, pretrained
from regard.atlas.survey import survey

__all__ = ["Atlas", "Loader", "open", "pretrained", "survey"]
