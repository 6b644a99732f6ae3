"""`attend`: one definition of attention, several backends."""

from regard.attention.attend import attend, attend_with_lse, plan
from regard.attention.choose import Plan, RankWork

__all__ = ["Plan", "RankWork", "attend", "attend_with_lse", "plan"]
