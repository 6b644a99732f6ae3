"""Which passages of a prompt an answer used."""

from regard.attribution.attribute import attribute
from regard.attribution.attribution import Attribution
from regard.attribution.passages import Passage
from regard.attribution.verification import Verification

__all__ = ["Attribution", "Passage", "Verification", "attribute"]
