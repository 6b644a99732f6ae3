"""Which passages of a prompt an answer used."""

from regard.attribution.attribute import attribute
from regard.attribution.attribution import Attribution
from regard.attribution.hidden import HiddenPassages
from regard.attribution.looks import HeadLooks
from regard.attribution.passages import Passage

__all__ = ["Attribution", "HeadLooks", "HiddenPassages", "Passage", "attribute"]
