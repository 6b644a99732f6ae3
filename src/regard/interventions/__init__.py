"""What attention does: heads and pairs of a model taken away, changed, or given by another run."""

from regard.interventions.ablate import ablate
from regard.interventions.heads import heads
from regard.interventions.knock_out import knock_out
from regard.interventions.logit_shares import LogitShares, logit_shares
from regard.interventions.patch import patch
from regard.interventions.spans import spans
from regard.interventions.steer import steer
from regard.interventions.verify import Verification, verify

__all__ = [
    "LogitShares",
    "Verification",
    "ablate",
    "heads",
    "knock_out",
    "logit_shares",
    "patch",
    "spans",
    "steer",
    "verify",
]
