"""Functions that run on each rank of a sharded model."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed, nn
from transformers import AttentionInterface, AutoModelForCausalLM

import regard
from regard.calls import AttentionCall
from regard.calls.check import EMPTY
from regard.capture.seen import Seen
from regard.matrix import Entropy, Pool, TopKeys

KEEP = (Entropy(), TopKeys(3), Pool(8))

Load = Callable[[Path], nn.Module]


def whole(path: Path) -> nn.Module:
    return AutoModelForCausalLM.from_pretrained(path).eval()


def tensor_parallel(path: Path) -> nn.Module:
    with warnings.catch_warnings():
        # Newer versions have another argument for it.
        warnings.simplefilter("ignore", FutureWarning)
        return AutoModelForCausalLM.from_pretrained(path, tp_plan="auto").eval()


def fully_sharded(path: Path) -> nn.Module:
    """Return a model whose layers, and whose projections for themselves, are sharded by FSDP2."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (distributed.get_world_size(),))
    model = whole(path)
    for number, layer in enumerate(model.model.layers):
        if number % 2:
            fully_shard(layer.self_attn.q_proj, mesh=mesh)
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def summaries(load: Load, path: Path, ids: Tensor, gather: bool) -> list[dict[str, Any]]:
    """Return the summaries of a model by name, a dictionary for each call."""
    model = load(path)
    with torch.no_grad(), regard.watch(model, keep=KEEP) as seen:
        model(ids)
    return _plain(seen.gather() if gather else seen)


def _plain(seen: Seen) -> list[dict[str, Any]]:
    seen.verify()
    return [_tensors(call) | {"key_heads": call.key_heads} for call in seen]


def _tensors(call: AttentionCall) -> dict[str, Any]:
    found: dict[str, Any] = {"heads": list(call.results[0].labels["heads"])}
    for result in call.results:
        found |= {f"{type(result).__name__}.{name}": x for name, x in result.tensors.items()}
    return found


def matrices(path: Path, ids: Tensor) -> list[tuple[list[int], str, Tensor]]:
    """Return the labels of the heads that a rank has, the heads as text, and their weights."""
    model = tensor_parallel(path)
    with regard.watch(model) as seen:
        model(ids)
    seen.verify()
    return [
        (list(call.matrix.entropy().labels["heads"]), call.heads_as_text, call.matrix.dense())
        for call in seen
    ]


def recorded(path: Path, ids: Tensor, folder: Path) -> list[Tensor]:
    """Record what all ranks have seen, together and gathered; return the gathered weights."""
    model = tensor_parallel(path)
    with torch.no_grad(), regard.watch(model) as seen:
        model(ids)
    tokens = [str(i) for i in ids[0].tolist()]
    together = regard.save(seen, folder / "together.regard", tokens=tokens)
    whole = seen.gather()
    whole.verify()
    if distributed.get_rank() == 0:
        regard.save(whole, folder / "gathered.regard", tokens=tokens)
    for call, other in zip(together, whole, strict=True):
        torch.testing.assert_close(call.matrix.dense(), other.matrix.dense(), rtol=0, atol=1e-5)
    return [call.matrix.dense() for call in whole]


def overwritten(path: Path, ids: Tensor) -> None:
    """Gather calls of which rank 1 has written over a query."""
    model = tensor_parallel(path)
    with torch.no_grad(), regard.watch(model, keep="copies") as seen:
        model(ids)
    if distributed.get_rank() == 1:
        seen[1].query.zero_()
    seen.gather()


def with_other_inputs(path: Path) -> None:
    """Gather what an unsharded model has seen, on each rank of another text."""
    summaries(whole, path, torch.arange(20)[None] + distributed.get_rank(), True)


def saved(path: Path, ids: Tensor, folder: Path, what: str) -> None:
    """Record something that is not one recording."""
    rank = distributed.get_rank()
    model = tensor_parallel(path)
    with torch.no_grad(), regard.watch(model, keep="copies") as seen:
        model(ids)
    tokens = [str(i) for i in ids[0].tolist()]
    place = folder / f"{what}.regard"
    calls = list(seen)
    if rank == 1:
        if what == "tokens":
            tokens[3] = "other"
        if what == "folder":
            place = folder / "nowhere" / place.name
        if what == "another folder":
            (folder / "elsewhere").mkdir()
            place = folder / "elsewhere" / place.name
        if what == "overwritten":
            seen[1].query.zero_()
        if what == "calls":
            calls.reverse()
        if what == "heads":
            calls = [call.sharded(0, 8) for call in calls]
    if what == "exists":
        place.mkdir(exist_ok=True)
    regard.save(calls, place, tokens=tokens)


def last_heads_first(
    query: Tensor, key: Tensor, sinks: Tensor, folder: Path
) -> tuple[Tensor, Tensor]:
    """Record and gather a matrix of which rank 0 has the last heads; return both weights."""
    heads = query.shape[1] // distributed.get_world_size()
    first = query.shape[1] - heads * (distributed.get_rank() + 1)
    mine = slice(first, first + heads)
    matrix = regard.AttentionMatrix(query[:, mine], key[:, mine], sinks=sinks[mine])
    call = AttentionCall.of(matrix, "layers.0", index=0, check=EMPTY)
    call = call.sharded(first, query.shape[1])
    tokens = [str(place) for place in range(query.shape[2])]
    (recorded,) = regard.save(call, folder / "together.regard", tokens=tokens, progress=False)
    (whole,) = Seen([call]).gather()
    return recorded.matrix.dense(), whole.matrix.dense()


def wrong_on_rank_1(path: Path, ids: Tensor) -> list[tuple[bool | None, bool | None]]:
    """Return of each call whether it is right on this rank, and of all heads."""
    model = tensor_parallel(path)
    kernels = AttentionInterface._global_mapping
    own = kernels["sdpa"]

    def wrong(*arguments: Any, **options: Any) -> Any:
        output, weights = own(*arguments, **options)
        return 1.5 * output, weights

    kernels["sdpa"] = wrong if distributed.get_rank() == 1 else own
    try:
        with torch.no_grad(), regard.watch(model) as seen:
            model(ids)
    finally:
        kernels["sdpa"] = own
    together = zip(seen, seen.gather(), strict=True)
    return [(call.check.passed, whole.check.passed) for call, whole in together]


def ablated(path: Path, ids: Tensor) -> None:
    model = tensor_parallel(path)
    with torch.no_grad(), regard.ablate(model, heads=[(0, 1)]):
        model(ids)


def without_names(path: Path, ids: Tensor) -> str:
    """Say why the heads of a model are not told whose projections have names of their own."""
    model = tensor_parallel(path)
    for layer in model.model.layers:
        attention = layer.self_attn
        renamed = attention.q_proj
        del attention.q_proj
        attention.mine = renamed
        object.__setattr__(attention, "q_proj", renamed)
    with torch.no_grad(), regard.watch(model) as seen:
        model(ids)
    return seen[0].problem


class TwoHeads(nn.Module):
    """Attention by a kernel, of the heads that its projection to queries returns."""

    def __init__(self) -> None:
        super().__init__()
        self.q_proj = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        query = self.q_proj(x).unflatten(-1, (-1, 4)).transpose(1, 2)
        return nn.functional.scaled_dot_product_attention(query, query, query)


def projection_alone(by: str) -> str:
    """Return the heads of a module of which only the projection is sharded, or the problem."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import Replicate
    from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

    mesh = init_device_mesh("cpu", (distributed.get_world_size(),))
    module = TwoHeads()
    if by == "fsdp":
        fully_shard(module.q_proj, mesh=mesh)
    elif by == "a plan without DTensors":
        # As transformers 5.4 marks what it has sharded.
        module.q_proj._hf_tp_plan = "colwise"
    else:
        style = ColwiseParallel(output_layouts=Replicate())
        parallelize_module(module, mesh, {"q_proj": style})
    with torch.no_grad(), regard.watch(module) as seen:
        module(torch.randn(1, 5, 8))
    return seen[0].problem or seen[0].heads_as_text


def in_two_replicas() -> str:
    """Return the heads of a module of two heads that this rank shares with one of three others."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
    module = TwoHeads()
    parallelize_module(module, mesh["tensor"], {"q_proj": ColwiseParallel()})
    with torch.no_grad(), regard.watch(module) as seen:
        module(torch.randn(1, 5, 8))
    return seen[0].problem or seen[0].heads_as_text
