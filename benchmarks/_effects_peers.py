"""Effects of all heads by gradient: by Regard, TransformerLens and captum, each in its environment.

The target is the first logit of the last token.
"""

import resource
from collections.abc import Callable
from typing import Any

import torch

import regard
from benchmarks._measure import cpu_timed, in_child, peak_bytes
from benchmarks._peers import CAPTUM, TRANSFORMER_LENS, Peer, python_of
from benchmarks.watch import loaded, text
from materials import smollm2
from regard.matrix import Received

MEMORY = 16_000_000_000
"""How many bytes a process may take."""

Heads = torch.Tensor
"""What each head does to the target, layers × heads."""

Way = Callable[[torch.Tensor], Heads]


def by_regard() -> Way:
    """Heads, and the sum of the effects of each column of each head. Without checkpoints."""
    model = loaded().requires_grad_(False)

    def run(tokens: torch.Tensor) -> Heads:
        with regard.watch(model, effects=True) as seen:
            model(tokens, use_cache=False, logits_to_keep=1).logits[0, -1, 0].backward()
        for call in seen:
            call.effects.summarize(Received(), progress=False)
        return seen.effects.heads().effects

    return run


def by_lens() -> Way:
    """Attribution patching towards zero: heads, and the sum of each column of each head."""
    from transformer_lens.model_bridge import TransformerBridge

    bridge: Any = TransformerBridge.boot_transformers(str(smollm2()), dtype=torch.float32)
    outputs: dict[str, torch.Tensor] = {}
    heads: list[torch.Tensor] = []
    columns: list[torch.Tensor] = []

    def forward(value: torch.Tensor, hook: Any) -> None:
        outputs[hook.name] = value.detach()

    def backward(gradient: torch.Tensor, hook: Any) -> None:
        product = gradient * outputs.pop(hook.name)
        if hook.name.endswith("hook_pattern"):
            columns.append(product.sum(dim=(0, 2)))
        else:
            heads.append(product.sum(dim=(0, 1, 3)))

    def is_watched(name: str) -> bool:
        return name.endswith(("attn.hook_z", "attn.hook_pattern"))

    def run(tokens: torch.Tensor) -> Heads:
        heads.clear()
        bridge(tokens)[0, -1, 0].backward()
        return torch.stack(heads[::-1])

    bridge.add_hook(is_watched, forward)
    bridge.add_hook(is_watched, backward, dir="bwd")
    return run


def by_captum() -> Way:
    """Gradient × activation, of what the output projections of all layers get: heads, no pairs."""
    from captum.attr import LayerGradientXActivation

    model = loaded().requires_grad_(False)
    model.enable_input_require_grads()
    layers: Any = [layer.self_attn.o_proj for layer in model.model.layers]
    width = model.config.hidden_size // model.config.num_attention_heads

    def run(tokens: torch.Tensor) -> Heads:
        def forward(ids: torch.Tensor) -> torch.Tensor:
            return model(ids, use_cache=False, logits_to_keep=1).logits[0, -1, :1]

        method = LayerGradientXActivation(forward, layers)
        found = method.attribute(tokens, attribute_to_layer_input=True)
        return torch.stack([each[0].unflatten(-1, (-1, width)).sum(dim=(0, 2)) for each in found])

    return run


WAYS: dict[str, tuple[Callable[[], Way], Peer | None]] = {
    "Regard": (by_regard, None),
    "TransformerLens": (by_lens, TRANSFORMER_LENS),
    "captum": (by_captum, CAPTUM),
}


def found_by(name: str, length: int) -> tuple[float, float, Heads]:
    """Return seconds of the processor, bytes, and what was found by one of the ways in a text.

    Raises:
        OutOfMemory: it needs more memory than it may take.
    """
    code = f"from benchmarks._effects_peers import show; show({name!r}, {length})"
    seconds, memory, *heads = in_child(code, python=python_of(WAYS[name][1]))
    return seconds, memory, torch.tensor(heads)


def show(name: str, length: int) -> None:
    """Print what `found_by` returns."""
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    way, tokens = WAYS[name][0](), text(length)
    way(tokens[:, :16])
    before = peak_bytes()
    found, seconds = cpu_timed(lambda: way(tokens))
    print(seconds, peak_bytes() - before, *found.flatten().tolist())
