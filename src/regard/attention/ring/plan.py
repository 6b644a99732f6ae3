"""What each rank computes and sends."""

from regard.attention.choose import Plan, RankWork
from regard.attention.ring.route import leg
from regard.attention.ring.run import RingInputs
from regard.attention.ring.shards import Shards
from regard.patterns import Pattern
from regard.patterns.layout_cache import cached


def work(pattern: Pattern, shards: Shards, block: int) -> tuple[RankWork, ...]:
    """Return the work of each rank in one forward pass, per head; no rank is asked.

    Args:
        pattern: which keys each query may attend to.
        shards: the positions of all ranks.
        block: queries per block.
    """

    def make() -> tuple[RankWork, ...]:
        ranks = range(len(shards.runs))
        pairs = [0 for _ in ranks]
        sent = [[0 for _ in ranks] for _ in ranks]
        for rank in ranks:
            for source in ranks:
                found = leg(pattern, shards, rank, source, block)
                pairs[rank] += found.layout.num_pairs
                if rank != source:
                    sent[source][rank] = len(found.wanted)
        return tuple(RankWork(pairs[rank], tuple(sent[rank])) for rank in ranks)

    return cached(pattern, ("ring work", shards, block), make)


def planned(call: RingInputs) -> Plan:
    """Return the cost of a call on all ranks; `flops` are those of this one."""
    inputs, length = call.inputs, call.shards.length
    ranks = work(inputs.pattern, call.shards, call.block(backward=False))
    width = inputs.key.shape[-1] + inputs.value.shape[-1]
    sequences = inputs.pattern.batch_size or 1
    num_pairs = sum(rank.num_pairs for rank in ranks)
    per_pair = 2.0 * width * inputs.num_heads * inputs.batch / sequences
    per_row = inputs.batch * inputs.key.shape[1] * width * inputs.query.element_size()
    return Plan(
        "blocks",
        f"the sequence is shared by {len(ranks)} ranks",
        num_pairs / max(1, length * length * sequences),
        per_pair * ranks[call.ring.rank].num_pairs,
        ranks,
        per_row,
    )
