"""`watch`: capture the attention of a running model."""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, overload

import torch
from torch import nn

from regard.calls.call import AttentionCall
from regard.calls.options import Options
from regard.capture.context import WatchContext
from regard.capture.seen import Seen, SeenEngine
from regard.capture.where import Where, check_model, some_names, wanted
from regard.matrix.reduction import AnyReduction, is_reduction
from regard.vllm.engine import Engine, is_engine


@overload
def watch(
    model: nn.Module,
    *,
    where: Where | Iterable[str | int] | None = None,
    keep: str | AnyReduction | Sequence[AnyReduction] = "tensors",
    check: bool = True,
    offload: str | None = None,
    values: bool = False,
    effects: bool = False,
) -> WatchContext[Seen]: ...
@overload
def watch(
    model: Engine,
    *,
    where: Where | Iterable[str | int] | None = None,
    keep: str | AnyReduction | Sequence[AnyReduction] = "tensors",
    check: bool = True,
    offload: str | None = None,
    values: bool = False,
    requests: Callable[[str], bool] | None = None,
) -> WatchContext[SeenEngine]: ...
def watch(
    model: nn.Module | Engine,
    *,
    where: Where | Iterable[str | int] | None = None,
    keep: str | AnyReduction | Sequence[AnyReduction] = "tensors",
    check: bool = True,
    offload: str | None = None,
    values: bool = False,
    effects: bool = False,
    requests: Callable[[str], bool] | None = None,
) -> WatchContext[Seen] | WatchContext[SeenEngine]:
    """Capture the exact attention of a model while it runs, with its own kernels.

        with regard.watch(model) as seen:
            model(**inputs)

        seen                     # a table of all calls of attention
        seen[5].matrix           # an AttentionMatrix

    The model's outputs don't change, and nothing remains after the block. It captures
    `scaled_dot_product_attention`, `flex_attention`, `attend`, `nn.MultiheadAttention`,
    transformers' attention interface, and in other code any softmax that is multiplied with values,
    also after other operations. It compares a few rows of A @ V of each call with the kernel's
    output. Unsupported attention, such as block-sparse, is listed with the reason.

    For a `vllm.LLM` it captures each request, prompt and generated tokens together:

        with regard.watch(llm) as seen:
            outputs = llm.generate(prompts)

        seen.requests[outputs[0].request_id][5].matrix

    Args:
        model: any module, from transformers or not, of which calls in this thread are captured; or
            a `vllm.LLM`.
        where: the modules to watch, with their children: one or several paths such as
            "model.layers.5.self_attn" or "*.cross_attn"; one or several numbers of layers; or a
            function of a module's path and the module. All by default.
        keep: "tensors" keeps references to queries and keys; "copies" copies them, for models that
            overwrite theirs; a list of reductions such as `[Entropy(), Pool(512)]` computes these
            during the call, as `call.results`, and keeps no queries and keys.
        check: whether to compare rows with the kernel's output.
        offload: a device to move queries and keys to after each call, such as "cpu".
        values: whether to keep values, as `call.value`, and the output projection, for
            `call.norms`; matrices don't need them.
        effects: whether to collect the gradients of outputs: after `target.backward()` there are
            `seen[5].effects`, an `EffectMatrix`, and `seen.effects.heads()`. Parameters may be
            frozen; queries, keys, values and outputs are kept.
        requests: a function of a request's id that selects requests of an engine. All by default.

    Raises:
        TypeError: `model` is not a module, or `keep` or `where` has a wrong type.
        ValueError: `keep` is unknown or excludes `effects`, `where` matches no module, or the
            engine is not supported.
        RuntimeError: no attention was seen, with a list of likely reasons; or `effects` is true
            and the model is called without gradients.

    >>> import torch, regard
    >>> encoder = torch.nn.TransformerEncoderLayer(32, nhead=4, batch_first=True).eval()
    >>> with regard.watch(encoder) as seen:
    ...     _ = encoder(torch.randn(2, 10, 32))
    >>> seen[0].matrix
    AttentionMatrix(2 batch × 4 heads × 10 queries × 10 keys, float32, everyone())
    """
    if isinstance(where, Iterator):
        # A list, because the context is reusable.
        where = list(where)
    if is_engine(model):
        if effects:
            raise ValueError("effects=True needs gradients, and vLLM computes none")
        return WatchContext(
            partial(
                _watching_engine,
                model,
                where=where,
                options=replace(
                    _options(wanted(where), keep), check=check, offload=offload, values=values
                ),
                requests=requests,
            )
        )
    if requests is not None:
        raise ValueError("requests must be None unless model is a vllm.LLM")
    return WatchContext(
        partial(
            _watching,
            model,
            where=where,
            keep=keep,
            check=check,
            offload=offload,
            values=values,
            effects=effects,
        )
    )


@contextmanager
def _watching(
    model: nn.Module | Engine,
    *,
    where: Where | Iterable[str | int] | None,
    keep: str | AnyReduction | Sequence[AnyReduction],
    check: bool,
    offload: str | None,
    values: bool,
    effects: bool,
) -> Generator[Seen]:
    check_model(model)
    assert isinstance(model, nn.Module)
    # Imported here to keep `import regard` fast.
    from regard.capture.module_stack import Hook, named_modules
    from regard.capture.watcher import Watcher

    calls: list[AttentionCall] = []
    is_wanted = wanted(where)
    if not any(is_wanted(name, module) for name, module in named_modules(model)):
        some = some_names(named_modules(model))
        raise ValueError(f"where must match a module of the model, got {where!r}; {some}")
    options = replace(
        _options(is_wanted, keep), check=check, offload=offload, values=values, effects=effects
    )
    if effects and options.reductions is not None:
        raise ValueError(
            'effects=True needs keep="tensors" or "copies": summarise effects after the backward '
            "pass"
        )
    with ExitStack() as entered:
        if effects:
            entered.callback(model.register_forward_pre_hook(Hook(_check_gradients)).remove)
        entered.enter_context(Watcher(model, calls, options))
        yield Seen(calls)
    if not calls:
        raise RuntimeError(_NOTHING)


@contextmanager
def _watching_engine(
    llm: Engine,
    *,
    where: Where | Iterable[str | int] | None,
    options: Options,
    requests: Callable[[str], bool] | None,
) -> Generator[SeenEngine]:
    from regard.vllm.engine import request_name, runner_of
    from regard.vllm.watcher import EngineOptions, EngineWatcher

    seen = SeenEngine()
    engine_options = EngineOptions(
        **vars(options),
        request_name=partial(request_name, llm),
        is_request_wanted=requests or (lambda name: True),
        obstacle=lambda identifier, num_tokens: "",
        on_end=lambda request: seen.requests.add(request.name, request.calls),
    )
    watcher = EngineWatcher(runner_of(llm), engine_options)
    if not watcher.num_layers:
        raise ValueError(f"where must match attention of the engine's model, got {where!r}")
    with watcher:
        yield seen
    if not seen.requests:
        raise RuntimeError("no request was seen: call llm.generate inside the block")


def _check_gradients(model: nn.Module, arguments: object) -> None:
    """Raise RuntimeError if a model is called without gradients."""
    if not torch.is_grad_enabled():
        raise RuntimeError(
            "effects=True needs gradients: call the model without torch.no_grad() and "
            "torch.inference_mode(). generate() disables gradients: call the model on the "
            "generated text instead"
        )


_NOTHING = """\
no attention was seen. Likely reasons:
- the model was not called inside the block, or another one was
- it ran in another thread or process (DataParallel, a server): watch it where it runs
- `where` leaves out the modules that have attention
- it has no attention, or its own kernel (flash_attn, xformers, Triton): switch it to PyTorch's, in
  transformers with model.set_attn_implementation("sdpa")
- its attention is not a softmax that is multiplied with values: hashing (Reformer, YOSO),
  correlation (Autoformer), linear or sampled attention
- it was exported or compiled ahead of time: watch the original"""


def _options(is_wanted: Callable[[str, nn.Module], bool], keep: Any) -> Options:
    if isinstance(keep, str):
        if keep not in ("tensors", "copies"):
            raise ValueError(
                f'keep must be "tensors", "copies" or a list of reductions, got {keep!r}'
            )
        return Options(is_wanted, copy=keep == "copies")
    reductions = tuple(keep) if isinstance(keep, Iterable) else (keep,)
    for reduction in reductions:
        if not is_reduction(reduction):
            raise TypeError(
                'keep must be "tensors", "copies" or a list of reductions such as Entropy(), '
                f"got {reduction!r}"
            )
    return Options(is_wanted, reductions)
