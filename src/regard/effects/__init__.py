"""What attention does: heads and pairs taken away from a running model."""

from regard.effects.ablate import ablate
from regard.effects.knock_out import knock_out

__all__ = ["ablate", "knock_out"]
