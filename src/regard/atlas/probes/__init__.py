"""Probes: score heads on annotated words."""

from regard.atlas.probes.coreference import Coreference
from regard.atlas.probes.probe import Probe
from regard.atlas.probes.relations import Relations
from regard.atlas.probes.scores import coreference_table, relations_table

__all__ = ["Coreference", "Probe", "Relations", "coreference_table", "relations_table"]
