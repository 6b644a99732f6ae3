"""Capture the inputs and outputs of the layers of an engine, request by request.

A step of an engine runs the model on a batch of rows: the next tokens of several requests, one
request after the other. Two methods are wrapped, on their objects:

    execute_model        a step: requests that have ended are passed on, with their calls
      impl.forward       a layer: the rows of each watched request are copied

Rows are assigned to requests in the first layer of a step, when the engine has prepared its batch.
Each layer compares that with the metadata of its attention. Errors inside of a step become the
problem of requests: watching must not break an engine.
"""

from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from regard.calls.call import AttentionCall
from regard.calls.check import sampled_rows
from regard.calls.options import Options
from regard.errors import first_line
from regard.matrix.source import as_tensor
from regard.vllm.captured import Captured, joined_calls
from regard.vllm.layer import WatchedLayer, has_attention, watched_layer


@dataclass(eq=False)
class _Request:
    """A watched request.

    Attributes:
        name: its id outside of the engine.
        layers: its steps in each layer.
        tokens: the tokens that were fed to the model.
        problem: why its calls are unusable, if so.
    """

    name: str
    layers: list[Captured]
    tokens: list[int] = field(default_factory=list[int])
    problem: str = ""


class EndedRequest(NamedTuple):
    """A request that is no longer watched.

    Attributes:
        identifier: the engine's own id, which is unique.
        name: its id outside of the engine.
        finished: whether the engine has ended it.
        tokens: the tokens that were fed to the model: all but the last one.
        calls: a call for each layer.
        problem: why its calls are unusable, if so.
    """

    identifier: str
    name: str
    finished: bool
    tokens: list[int]
    calls: list[AttentionCall]
    problem: str


class _Rows(NamedTuple):
    """The rows of one request in the batch of a step.

    Attributes:
        request: the request.
        place: its place in the batch.
        start: its first row.
        stop: the row after its last.
        position: position of the first row in the request.
        compared: positions of the rows to compare with the output.
    """

    request: _Request
    place: int
    start: int
    stop: int
    position: int
    compared: list[int]


@dataclass(frozen=True)
class _Batch:
    """The batch of a step.

    Attributes:
        starts: first row of each request, and the number of rows.
        lengths: number of tokens of each request, those of this step included.
        watched: rows of the watched requests.
    """

    starts: list[int]
    lengths: list[int]
    watched: list[_Rows]


@dataclass(frozen=True, kw_only=True)
class EngineOptions(Options):
    """Options of the watcher of an engine.

    Attributes:
        request_name: returns the name of a request, from its id in the engine.
        is_request_wanted: returns whether to watch a request, from its name.
        obstacle: returns why a request can't be kept, "" if it can, from its id in the engine and
            its number of tokens; called before each step.
        on_end: called with each request that has ended.
    """

    request_name: Callable[[str], str]
    is_request_wanted: Callable[[str], bool]
    obstacle: Callable[[str, int], str]
    on_end: Callable[[EndedRequest], None]


class EngineWatcher:
    """Watches the requests of an engine, as a context manager.

    Args:
        runner: the model runner of the engine, an object of vLLM.
        options: its options.

    Raises:
        ValueError: a layer is not supported.
    """

    def __init__(self, runner: Any, options: EngineOptions) -> None:
        self._runner, self._options = runner, options
        self._input_ids = runner.input_ids
        modules = [
            (name, module)
            for name, module in runner.get_model().named_modules()
            if has_attention(module) and options.wanted(name, module)
        ]
        block_sizes = _block_sizes(runner)
        self._layers = [
            watched_layer(index, name, module, block_sizes)
            for index, (name, module) in enumerate(modules)
        ]
        self._requests: dict[str, _Request | None] = {}
        self._scheduled: dict[str, int] | None = None
        self._batch: _Batch | None = None
        self._entered = ExitStack()
        self._error: Exception | None = None

    @property
    def num_layers(self) -> int:
        """Number of watched layers."""
        return len(self._layers)

    @property
    def token_bytes(self) -> int:
        """Bytes that are kept of a token, in all layers."""
        return sum(layer.token_bytes for layer in self._layers)

    def __enter__(self) -> Self:
        with ExitStack() as entering:
            entering.callback(self._end_all)
            entering.enter_context(_wrapped(self._runner, "execute_model", self._wrapped_step))
            for layer in self._layers:
                wrap = partial(self._wrapped_layer, layer)
                entering.enter_context(_wrapped(layer.module.impl, "forward", wrap))
            self._entered = entering.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._entered.close()
        if self._error is not None and error is None:
            raise self._error

    def _wrapped_step(self, execute_model: Callable[..., Any]) -> Callable[..., Any]:
        def execute(scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
            # A set, and all workers need one order.
            for identifier in sorted(scheduler_output.finished_req_ids):
                self._end(identifier, finished=True)
            self._scheduled, self._batch = scheduler_output.num_scheduled_tokens, None
            try:
                return execute_model(scheduler_output, *args, **kwargs)
            finally:
                self._scheduled = self._batch = None

        return execute

    def _wrapped_layer(
        self, watched: WatchedLayer, forward: Callable[..., Any]
    ) -> Callable[..., Any]:
        def attend(
            layer: Any,
            query: Tensor,
            key: Tensor,
            value: Tensor,
            kv_cache: Tensor,
            attn_metadata: Any,
            output: Tensor,
            *args: Any,
            **kwargs: Any,
        ) -> Any:
            result = forward(
                layer, query, key, value, kv_cache, attn_metadata, output, *args, **kwargs
            )
            # The engine warms up without metadata.
            if self._scheduled is not None and attn_metadata is not None:
                tensors = (query, key, value, output.view(query.shape))
                with torch.inference_mode(False):
                    self._capture(watched, tensors, kv_cache, attn_metadata)
            return result

        return attend

    def _capture(
        self, layer: WatchedLayer, tensors: tuple[Tensor, ...], cache: Tensor, metadata: Any
    ) -> None:
        """Capture a step of a layer."""
        if self._batch is None:
            self._batch = self._read_batch()
        watched = self._batch.watched
        if not watched:
            return
        with _errors_as_problems(*(rows.request for rows in watched)):
            _check_metadata(metadata, self._batch)

        for rows in watched:
            if rows.request.problem:
                continue
            with _errors_as_problems(rows.request):
                captured = rows.request.layers[layer.call.index]
                if rows.position != captured.num_tokens:
                    blocks = metadata.block_table[rows.place]
                    first = captured.first_missing(rows.position)
                    pairs = layer.reader.read(cache, blocks, first, rows.position)
                    captured.restart(pairs, rows.position)
                query, key, value, output = (tensor[rows.start : rows.stop] for tensor in tensors)
                captured.add(query, key, value, output, rows.compared)

    def _read_batch(self) -> _Batch:
        """Return the rows of each request in the batch."""
        batch, scheduled = self._runner.input_batch, self._scheduled
        assert scheduled is not None
        computed = batch.num_computed_tokens_cpu[: batch.num_reqs].tolist()
        starts, lengths, watched = [0], list[int](), list[_Rows]()
        for place, identifier in enumerate(batch.req_ids[: batch.num_reqs]):
            # Its rows of the batch, and the positions of these in the request.
            start = starts[-1]
            stop, position = start + scheduled[identifier], computed[place]
            starts.append(stop)
            lengths.append(position + stop - start)

            request = self._request(identifier)
            if request is not None and self._is_kept(request, identifier, lengths[-1]):
                if len(request.tokens) != position:
                    request.tokens = batch.token_ids_cpu[place, :position].tolist()
                request.tokens += self._input_ids.gpu[start:stop].tolist()
                compared = as_tensor(sampled_rows(stop - start, position)) + position
                watched.append(_Rows(request, place, start, stop, position, compared.tolist()))
        return _Batch(starts, lengths, watched)

    def _request(self, identifier: str) -> _Request | None:
        """Return a request; None if it isn't watched."""
        if identifier not in self._requests:
            name = self._options.request_name(identifier)
            request = _Request(name, self._empty_layers()) if self._is_wanted(name) else None
            self._requests[identifier] = request
        return self._requests[identifier]

    def _empty_layers(self) -> list[Captured]:
        return [Captured(layer, self._options) for layer in self._layers]

    def _is_kept(self, request: _Request, identifier: str, num_tokens: int) -> bool:
        """Return whether a request is kept in the step to come; if not, free its tensors."""
        if not request.problem:
            with _errors_as_problems(request):
                request.problem = self._options.obstacle(identifier, num_tokens)
        if request.problem:
            request.layers = self._empty_layers()
        return not request.problem

    def _is_wanted(self, name: str) -> bool:
        try:
            return self._options.is_request_wanted(name)
        except Exception as error:  # noqa: BLE001
            # Raised after the block: an engine that fails in a step may hang.
            self._error = self._error or error
            return False

    def _end(self, identifier: str, *, finished: bool) -> None:
        """Pass on a request with its calls."""
        request = self._requests.pop(identifier, None)
        if request is None:
            return
        if len({captured.num_tokens for captured in request.layers}) > 1:
            request.problem = request.problem or "a step of the engine failed"
        with torch.inference_mode(False), torch.no_grad():
            calls = self._calls(request)
        self._options.on_end(
            EndedRequest(identifier, request.name, finished, request.tokens, calls, request.problem)
        )

    def _end_all(self) -> None:
        for identifier in list(self._requests):
            self._end(identifier, finished=False)

    def _calls(self, request: _Request) -> list[AttentionCall]:
        """Return the calls of a request, one of each layer."""
        reductions = self._options.reductions
        if not request.problem:
            with _errors_as_problems(request):
                calls = joined_calls(request.layers)
                if reductions is None:
                    return calls
                return [call.summarized(reductions) for call in calls]
        return [layer.call.failed(request.problem) for layer in self._layers]


@contextmanager
def _errors_as_problems(*requests: _Request) -> Generator[None]:
    """Keep an error as the problem of requests."""
    try:
        yield
    except Exception as error:  # noqa: BLE001
        for request in requests:
            request.problem = request.problem or first_line(error)


@contextmanager
def _wrapped(
    owner: Any, name: str, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> Generator[None]:
    """Wrap a method of an object, which may already be wrapped."""
    before = vars(owner).get(name)
    setattr(owner, name, wrap(getattr(owner, name)))
    try:
        yield
    finally:
        if before is None:
            delattr(owner, name)
        else:
            setattr(owner, name, before)


def _check_metadata(metadata: Any, batch: _Batch) -> None:
    """Raise ValueError if the batch of the attention is not that of the engine."""
    count = len(batch.lengths)
    starts = metadata.query_start_loc[: count + 1].tolist()
    lengths = metadata.seq_lens[:count].tolist()
    if (starts, lengths) != (batch.starts, batch.lengths):
        raise ValueError("the rows of the attention are not those of the engine's requests")
    if metadata.causal is not True or getattr(metadata, "dynamic_causal", None) is not None:
        raise ValueError("the attention was not causal")


def _block_sizes(runner: Any) -> dict[str, int]:
    """Return the block size of each layer's cache, in tokens."""
    tables = runner.input_batch.block_table.block_tables
    return {
        name: table.block_size
        for group, table in zip(runner.kv_cache_config.kv_cache_groups, tables, strict=True)
        for name in group.layer_names
    }
