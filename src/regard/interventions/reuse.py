"""Run a model again from one of its blocks on.

Ablating a head of block 2 changes nothing in blocks 0 and 1, so a second run needn't compute them:

    first run     x ─ block 0 ─ block 1 ─ block 2 ─ block 3 ─ target     outputs are kept
    altered run   x ─ (kept)  ─ (kept)  ─ block 2 ─ block 3 ─ target

Their `forward` is replaced by one that returns the kept output, if the block gets the same tensors
as in the first run, compared number for number, and its output was not modified since. Of a model
with L blocks, a run per layer costs half: L (L + 1) / 2 blocks instead of L². Memory: inputs and
outputs of all blocks.

A model may do more than return tensors: collect hidden states, draw random numbers, call a block
twice. So it is tried first, with all blocks but the last: nothing is reused unless the target is
bit by bit the same. Correctness doesn't depend on it: without reuse, all blocks are computed.
"""

from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from regard.capture.module_stack import named_modules
from regard.capture.projections import tensors_in
from regard.versions import Versions


@dataclass(frozen=True, eq=False)
class _Block:
    """A block that has run.

    Attributes:
        name: its path.
        module: the block.
        inputs: the tensors among its arguments.
        output: its output.
        versions: detect that its output is modified.
    """

    name: str
    module: nn.Module
    inputs: list[Tensor]
    output: Any
    versions: Versions

    def forward(self, *arguments: Any, **options: Any) -> Any:
        """Return the kept output for the same inputs; compute others."""
        inputs = list(tensors_in([*arguments, *options.values()]))
        same = len(inputs) == len(self.inputs) and all(map(_equal, inputs, self.inputs))
        if same and self.versions.modified() is None:
            return self.output
        return type(self.module).forward(self.module, *arguments, **options)


class Reuse:
    """The outputs of the blocks of a model in a run.

    Blocks are the modules of a `ModuleList` of the model, outside of other blocks. Nothing is
    reused if one runs more than once or returns more than tensors, or if the run returns another
    number when they are not computed.

    Args:
        model: the model.
        run: runs the model, without gradients, and returns a number, the same each time.

    Attributes:
        target: that number.
    """

    def __init__(self, model: nn.Module, run: Callable[[], Tensor]) -> None:
        self._blocks: list[_Block] = []
        with ExitStack() as hooks:
            for name, module in _blocks(model).items():
                hook = module.register_forward_hook(self._hook_of(name), with_kwargs=True)
                hooks.callback(hook.remove)
            self.target = run()
        if self._is_plain():
            with self.before(self._blocks[-1].name):
                again = run()
            if again.dtype == self.target.dtype and torch.equal(again, self.target):
                return
        self._blocks = []

    def _is_plain(self) -> bool:
        """Return whether each block ran once, and does no more than return tensors."""
        names = {block.name for block in self._blocks}
        if not names or len(names) < len(self._blocks):
            return False
        return all(
            # A forward that was replaced, as by accelerate, does more than to compute.
            "forward" not in block.module.__dict__ and _is_plain(block.output)
            for block in self._blocks
        )

    @contextmanager
    def before(self, name: str) -> Generator[None]:
        """Return a context in which blocks that ran before that of a module are not computed."""
        own = [f"{name}.".startswith(f"{block.name}.") for block in self._blocks]
        with ExitStack() as stack:
            for block in self._blocks[: own.index(True)] if any(own) else ():
                block.module.forward = block.forward
                stack.callback(delattr, block.module, "forward")
            yield

    def _hook_of(self, name: str) -> Callable[..., None]:
        def hook(module: nn.Module, arguments: Any, options: Any, output: Any) -> None:
            inputs = list(tensors_in([*arguments, *options.values()]))
            versions = Versions(("output", tensor) for tensor in tensors_in([output]))
            self._blocks.append(_Block(name, module, inputs, output, versions))

        return hook


def _blocks(model: nn.Module) -> dict[str, nn.Module]:
    """Return the modules of the outermost lists of modules, by path."""
    blocks: dict[str, nn.Module] = {}
    lists: list[str] = []
    for name, module in named_modules(model):
        if any(name.startswith(f"{block}.") for block in blocks):
            continue
        if isinstance(module, nn.ModuleList):
            lists.append(name)
        elif name.rpartition(".")[0] in lists:
            blocks[name] = module
    return blocks


def _is_plain(output: Any) -> bool:
    """Return whether an output has only tensors whose versions tell modifications."""
    if isinstance(output, Tensor):
        return not output.is_inference()
    return output is None or (isinstance(output, tuple) and all(map(_is_plain, output)))


def _equal(first: Tensor, second: Tensor) -> bool:
    return first is second or (
        (first.shape, first.dtype, first.device) == (second.shape, second.dtype, second.device)
        and torch.equal(first, second)
    )
