"""What attention does: heads and pairs taken away from a running model."""

from regard.effects.ablate import ablate
from regard.effects.heads import heads
from regard.effects.knock_out import knock_out
from regard.effects.verify import Verification, verify

__all__ = ["Verification", "ablate", "heads", "knock_out", "verify"]
