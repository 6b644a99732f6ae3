"""Which passages of a prompt an answer used."""

from regard.attribution.attribute import attribute
from regard.attribution.attribution import Attribution
from regard.attribution.passages import Passage
from regard.attribution.ranking import HiddenPassages
from regard.attribution.scoring import HeadLooks

__all__ = ["Attribution", "HeadLooks", "HiddenPassages", "Passage", "attribute"]
