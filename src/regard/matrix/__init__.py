"""The attention matrix as a lazy value."""

from regard.matrix.distance import Distance, DistanceResult, Offsets, OffsetsResult
from regard.matrix.effect_matrix import EffectMatrix
from regard.matrix.entropy import EffectiveKeys, EffectiveKeysResult, Entropy, EntropyResult
from regard.matrix.matrix import AttentionMatrix
from regard.matrix.norm_matrix import NormMatrix
from regard.matrix.pool import Pool, PoolResult
from regard.matrix.received import (
    Between,
    BetweenResult,
    Mass,
    MassResult,
    Received,
    ReceivedResult,
)
from regard.matrix.reduction import Reduction, Result
from regard.matrix.rollout import rollout
from regard.matrix.summarize import accumulate
from regard.matrix.tiles import Tile
from regard.matrix.top_keys import Edges, EdgesResult, Hits, HitsResult, TopKeys, TopKeysResult
from regard.matrix.view import View

__all__ = [
    "AttentionMatrix",
    "Between",
    "BetweenResult",
    "Distance",
    "DistanceResult",
    "Edges",
    "EdgesResult",
    "EffectMatrix",
    "EffectiveKeys",
    "EffectiveKeysResult",
    "Entropy",
    "EntropyResult",
    "Hits",
    "HitsResult",
    "Mass",
    "MassResult",
    "NormMatrix",
    "Offsets",
    "OffsetsResult",
    "Pool",
    "PoolResult",
    "Received",
    "ReceivedResult",
    "Reduction",
    "Result",
    "Tile",
    "TopKeys",
    "TopKeysResult",
    "View",
    "accumulate",
    "rollout",
]
