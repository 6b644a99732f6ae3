"""Scores of passages for an answer of one token: by Regard, captum, flashtrace and inseq, each in
its environment."""

import json
import resource
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass

import torch
from torch import Tensor
from transformers import AutoTokenizer

import regard
from benchmarks._measure import cpu_timed, in_child, peak_bytes
from benchmarks._peers import CAPTUM, FLASHTRACE, INSEQ, Peer, python_of
from benchmarks.watch import loaded
from materials import smollm2


@dataclass(frozen=True)
class Given:
    """A prompt with its answer.

    Attributes:
        text: the prompt.
        answer: what follows it, one token.
        passages: the passages of the prompt.
        tokens: those of the prompt, and that of the answer.
        spans: the first token of each passage, and the one after its last.
    """

    text: str
    answer: str
    passages: list[str]
    tokens: list[int]
    spans: list[tuple[int, int]]

    def sums(self, values: Tensor) -> list[float]:
        """Return the sums of values of tokens over each passage."""
        return [float(values[start:stop].sum()) for start, stop in self.spans]


Way = Callable[[Given], list[float]]

MEMORY = 8_000_000_000
"""So many bytes a process may take, with the model."""


def by_regard() -> Way:
    """Effects: by one forward and one backward pass."""
    model, tokenizer = loaded().requires_grad_(False), AutoTokenizer.from_pretrained(smollm2())

    def run(given: Given) -> list[float]:
        found = regard.attribute(
            model, tokenizer, given.text, given.answer, given.passages, progress=False
        )
        return found.scores.tolist()

    return run


def by_captum() -> Way:
    """Feature ablation: the tokens of a passage become ends of lines, one passage after another."""
    from captum.attr import FeatureAblation

    model = loaded()
    # Not 0, which is what it takes by itself: that ends a text, and what is before is forgotten.
    (blank,) = AutoTokenizer.from_pretrained(smollm2())("\n")["input_ids"]

    def run(given: Given) -> list[float]:
        tokens, answer = torch.tensor([given.tokens[:-1]]), given.tokens[-1]
        groups = torch.full_like(tokens, len(given.spans))
        for number, (start, stop) in enumerate(given.spans):
            groups[0, start:stop] = number

        def log_prob(ids: Tensor) -> Tensor:
            logits = model(ids, use_cache=False, logits_to_keep=1).logits[:, -1]
            return logits.log_softmax(dim=-1)[:, answer]

        method = FeatureAblation(log_prob)
        with torch.no_grad():
            found = method.attribute(tokens, baselines=blank, feature_mask=groups)[0]
        return [float(found[start]) for start, _ in given.spans]

    return run


def by_flashtrace() -> Way:
    """FlashTrace in one hop, with attention weights that the model returns."""
    from flashtrace import FlashTrace

    model, tokenizer = loaded("eager"), AutoTokenizer.from_pretrained(smollm2())

    def run(given: Given) -> list[float]:
        # It puts an end of text behind the answer, which is not asked about.
        found = FlashTrace(model, tokenizer).trace(
            prompt=given.text, target=given.answer, output_span=(0, 0)
        )
        assert len(found.scores) == len(given.tokens) - 1
        return given.sums(torch.tensor(found.scores))

    return run


def by_inseq() -> Way:
    """Gradient × input as inseq sums it up: the norm over the dimensions of a token."""
    import inseq

    tokenizer = AutoTokenizer.from_pretrained(smollm2())
    model = inseq.load_model(loaded(), "input_x_gradient", tokenizer=tokenizer)

    def run(given: Given) -> list[float]:
        whole = given.text + given.answer
        found = model.attribute(given.text, whole, show_progress=False).aggregate()[0]
        assert [token.id for token in found.target] == given.tokens
        return given.sums(found.target_attributions[:, 0])

    return run


WAYS: dict[str, tuple[Callable[[], Way], Peer | None]] = {
    "Regard": (by_regard, None),
    "captum feature ablation": (by_captum, CAPTUM),
    "flashtrace": (by_flashtrace, FLASHTRACE),
    "inseq gradient × input": (by_inseq, INSEQ),
}


def found_by(name: str, given: Given) -> tuple[list[float], float, float]:
    """Return scores of passages by one of the ways, its cost in forward passes, and its bytes.

    Raises:
        OutOfMemory: it needs more memory than it may take.
    """
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(asdict(given), file)
        file.flush()
        code = f"from benchmarks._attribute_peers import show; show({name!r}, {file.name!r})"
        cost, memory, *scores = in_child(code, python=python_of(WAYS[name][1]))
    return scores, cost, memory


def show(name: str, path: str) -> None:
    """Print what `found_by` returns, the scores last."""
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    with open(path, encoding="utf-8") as file:
        given = Given(**json.load(file))
    bare, tokens = loaded(), torch.tensor([given.tokens[:-1]])
    way = WAYS[name][0]()

    @torch.no_grad()
    def forward() -> object:
        return bare(tokens, use_cache=False, logits_to_keep=1)

    passes = [cpu_timed(forward)[1]]
    before = peak_bytes()
    scores, seconds = cpu_timed(lambda: way(given))
    memory = peak_bytes() - before
    passes.append(cpu_timed(forward)[1])
    print(seconds / min(passes), memory, *scores)
