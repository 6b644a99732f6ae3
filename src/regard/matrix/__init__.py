"""The attention matrix as a lazy value."""

from regard.matrix.between import Between, BetweenResult
from regard.matrix.distance import Distance, DistanceResult
from regard.matrix.edges import Edges, EdgesResult
from regard.matrix.effect_matrix import EffectMatrix
from regard.matrix.effective_keys import EffectiveKeys, EffectiveKeysResult
from regard.matrix.entropy import Entropy, EntropyResult
from regard.matrix.hits import Hits, HitsResult
from regard.matrix.mass import Mass, MassResult
from regard.matrix.matrix import AttentionMatrix
from regard.matrix.norm_matrix import NormMatrix
from regard.matrix.offsets import Offsets, OffsetsResult
from regard.matrix.pool import Pool, PoolResult
from regard.matrix.received import Received, ReceivedResult
from regard.matrix.reduction import Reduction
from regard.matrix.result import Result
from regard.matrix.rollout import rollout
from regard.matrix.summarize import accumulate
from regard.matrix.tiles import Tile
from regard.matrix.top_keys import TopKeys, TopKeysResult
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
