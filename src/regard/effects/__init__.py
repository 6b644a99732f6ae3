"""What attention does: heads and pairs taken away from a running model."""

from regard.effects.ablate import ablate
from regard.effects.heads import heads
from regard.effects.knock_out import knock_out
from regard.effects.logit_shares import LogitShares, logit_shares
from regard.effects.verify import Verification, verify

__all__ = [
    "LogitShares",
    "Verification",
    "ablate",
    "heads",
    "knock_out",
    "logit_shares",
    "verify",
]
