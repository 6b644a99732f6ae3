"""Position encodings and score biases.

- Added to the embeddings: `sinusoidal`, `Learned`.
- Rotations of queries and keys: `Rotary`.
- Functions of the scores: any `Bias`, such as `alibi`, `Relative`, `softcap` and `from_tensor`.
"""

from regard.positions.alibi import alibi
from regard.positions.bias import Bias, softcap
from regard.positions.encodings import Learned, sinusoidal
from regard.positions.from_tensor import from_tensor
from regard.positions.relative import Relative
from regard.positions.rotary import Rotary

__all__ = [
    "Bias",
    "Learned",
    "Relative",
    "Rotary",
    "alibi",
    "from_tensor",
    "sinusoidal",
    "softcap",
]
