"""Which passages an answer used: effects and others against leave-one-out, on SmolLM2-135M.

    python -m benchmarks.attribute [--json] [--only quality datamodel peers cost]
                                   [--prompts N] [--minutes M] [--rows FILE]

Prompts have a planted fact among sentences of Moby-Dick, and two facts that could be taken for it:
40 of about 1,000 tokens and 32 passages, 10 of about 3,600 tokens and 64 passages. The truth is
what the answer loses if a passage is hidden by a mask, with positions kept.

`quality`: which passage comes first, the rank correlation with leave-one-out, and what the answer
loses without the strongest passages together. `datamodel`: how well sums of scores rank random
halves of the passages by the probability of the answer (Spearman, 32 halves), beside ContextCite's
own regression on 32 and 64 others. `peers`: captum's feature ablation, flashtrace and inseq, on the
same prompts and a long one, in processes that may take 8 GB. `cost`: the long prompt.

What was measured of a prompt is kept beside the results, and not measured again, because the run
of all prompts takes hours on two cores: delete the file to begin anew. `--minutes` ends a run
early, `--prompts` takes the first of each kind.
"""

import hashlib
import json
import math
import random
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoTokenizer, DynamicCache

import regard
from benchmarks._attribute_peers import MEMORY, WAYS, Given, found_by
from benchmarks._measure import (
    Figure,
    OutOfMemory,
    cpu_timed,
    in_child,
    introduce,
    machine,
    parser_of,
    peak_bytes,
    report,
    versions,
)
from benchmarks._passages import KINDS, Kind, Planted, planted
from benchmarks._peers import CONTEXT_CITE
from benchmarks._results import FOLDER
from benchmarks.watch import loaded
from materials import smollm2
from regard.attribution.prompt import prompt_of
from regard.attribution.scoring import by_leaving_out
from regard.interventions.verify import correlation, ranks
from regard.matrix import Received, rollout

TOPS = (1, 3, 5)
HALVES = 32
PASSES = (32, 64)
ROWS = FOLDER / "attribute-rows.jsonl"

Row = dict[str, Any]


class Asked:
    """A prompt that was asked, and what hiding passages did.

    Args:
        model: SmolLM2.
        tokenizer: its tokenizer.
        prompt: the prompt.
    """

    def __init__(self, model: Any, tokenizer: Any, prompt: Planted) -> None:
        self.model, self.tokenizer, self.prompt = model, tokenizer, prompt
        found = prompt_of(tokenizer, prompt.text, prompt.passages)
        tokens = found.ids + tokenizer(prompt.answer)["input_ids"]
        self.tokens = torch.tensor([tokens])
        self.spans = [passage.tokens for passage in found.passages]
        ends = [(span.start, span.stop) for span in self.spans]
        self.given = Given(prompt.text, prompt.answer, prompt.passages, tokens, ends)

    @torch.no_grad()
    def forward(self) -> object:
        return self.model(self.tokens, use_cache=False, logits_to_keep=2)

    def effects(self) -> regard.attribution.Attribution:
        prompt = self.prompt
        return regard.attribute(
            self.model,
            self.tokenizer,
            prompt.text,
            prompt.answer,
            prompt.passages,
            progress=False,
        )

    def losses(self, sets: Sequence[Sequence[int]]) -> list[float]:
        """Return what the answer loses in log-probability without each set of passages.

        As `by_leaving_out`, but what comes before the first hidden passage is computed once.
        """
        with torch.no_grad():
            whole = self.model(self.tokens[:, :-1], use_cache=True, logits_to_keep=1)
            base = self._log_prob(whole.logits)
            found = [base - self._hidden(numbers, whole.past_key_values) for numbers in sets]
        by_masks = by_leaving_out(
            self.model, self.tokens, 1, [[self.spans[number] for number in sets[0]]], progress=False
        )
        assert math.isclose(found[0], by_masks[0].item(), rel_tol=1e-3, abs_tol=1e-3)
        return found

    def _hidden(self, numbers: Sequence[int], cache: Any) -> float:
        """Return the log-probability of the answer without some passages."""
        spans = [self.spans[number] for number in numbers]
        first, length = min((span.stop for span in spans), default=0), self.tokens.shape[1] - 1
        mask = torch.ones(length, length, dtype=torch.bool).tril()
        for span in spans:
            mask[span.stop :, span.start : span.stop] = False
        before = DynamicCache()
        for number, layer in enumerate(cache.layers if first else ()):
            before.update(layer.keys[:, :, :first], layer.values[:, :, :first], number)
        logits = self.model(
            self.tokens[:, first:length],
            attention_mask=mask[None, None, first:],
            position_ids=torch.arange(first, length)[None],
            past_key_values=before,
            use_cache=True,
            logits_to_keep=1,
        ).logits
        return self._log_prob(logits)

    def _log_prob(self, logits: Tensor) -> float:
        return float(logits[0, -1].log_softmax(dim=-1)[self.tokens[0, -1]])


def attention(asked: Asked) -> dict[str, list[float]]:
    """Return scores by attention: of all rows, of the row that predicts the answer, by rollout."""
    tokens = asked.tokens[:, :-1]
    last = tokens.shape[1] - 1
    with torch.no_grad(), regard.watch(asked.model) as seen:
        asked.model(tokens, use_cache=False, logits_to_keep=1)
    received = sum(call.matrix[0].summarize(Received(), progress=False)[0].total for call in seen)
    rows = torch.stack([call.matrix[0, :, last] for call in seen]).mean(dim=(0, 1))
    rolled = rollout([call.matrix[0] for call in seen], tokens=[last])[0]
    return {
        "mean attention": asked.given.sums(torch.as_tensor(received).sum(dim=0)),
        "last-row attention": asked.given.sums(rows),
        "rollout": asked.given.sums(rolled),
    }


def gradient_times_input(asked: Asked) -> list[float]:
    model, tokens = asked.model, asked.tokens
    inputs = model.get_input_embeddings()(tokens[:, :-1]).detach().requires_grad_()
    logits = model(inputs_embeds=inputs, use_cache=False, logits_to_keep=1).logits[0, -1]
    (gradient,) = torch.autograd.grad(logits.log_softmax(dim=-1)[tokens[0, -1]], inputs)
    return asked.given.sums((gradient * inputs).detach()[0].sum(dim=1))


def quality_row(asked: Asked) -> Row:
    """Return scores of all kinds, the truth, and what the answer loses without the strongest."""
    seconds: dict[str, float] = {}

    def timed(name: str, run: Callable[[], Any]) -> Any:
        found, seconds[name] = cpu_timed(run)
        return found

    timed("forward", asked.forward)
    found = timed("effects", asked.effects)
    effects = found.scores.tolist()
    scores = {"effects": effects, **timed("attention", lambda: attention(asked))}
    scores["gradient × input"] = timed("gradient × input", lambda: gradient_times_input(asked))
    one_by_one = [[number] for number in range(len(effects))]
    truth = timed("leave-one-out", lambda: asked.losses(one_by_one))
    tops = {
        name: [sorted(strongest(values)[:count]) for count in TOPS]
        for name, values in (("effects", effects), ("leave-one-out", truth))
    }
    sets = [top for each in tops.values() for top in each]
    lost = dict(zip(map(str, sets), asked.losses(sets), strict=True))
    return {
        "planted": asked.prompt.planted,
        "tokens": asked.tokens.shape[1],
        "log_prob": found.log_prob,
        "truth": truth,
        "scores": scores,
        "drops": {name: [lost[str(top)] for top in each] for name, each in tops.items()},
        "cpu_seconds": seconds,
    }


def datamodel_row(asked: Asked) -> Row:
    """Return random halves of passages and what the answer loses: some to judge, some to fit."""
    chance = random.Random(asked.prompt.text)
    count = len(asked.spans)
    sets = [
        [number for number in range(count) if chance.random() < 0.5]
        for _ in range(HALVES + max(PASSES))
    ]
    found = asked.effects()
    return {
        "log_prob": found.log_prob,
        "effects": found.scores.tolist(),
        "hidden": sets,
        "losses": asked.losses(sets),
    }


CITE = """
import json, sys
import numpy as np
from context_cite.solver import LassoRegression
for line in open(sys.argv[1]):
    given = json.loads(line)
    weights, _ = LassoRegression().fit(np.array(given["masks"]), np.array(given["outputs"]), 1)
    print(json.dumps(list(map(float, weights))))
"""


def cited(rows: Sequence[Row], passes: int) -> list[list[float]]:
    """Return what ContextCite's own regression makes of the first sets of each prompt."""
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        for row in rows:
            count = len(row["effects"])
            hidden, losses = row["hidden"][HALVES:][:passes], row["losses"][HALVES:][:passes]
            masks = [[number not in each for number in range(count)] for each in hidden]
            # As ContextCite does: the logit of the probability of the answer.
            outputs = [_logit(row["log_prob"] - loss) for loss in losses]
            file.write(json.dumps({"masks": masks, "outputs": outputs}) + "\n")
        file.flush()
        command = [str(CONTEXT_CITE.python), "-c", CITE, file.name]
        ran = subprocess.run(command, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in ran.stdout.splitlines()]


def _logit(log_prob: float) -> float:
    return log_prob - math.log(-math.expm1(min(log_prob, -1e-9)))


def peer_row(name: str, asked: Asked) -> Row:
    """Return scores by one of the peers, in an environment of its own; nothing if too long."""
    try:
        scores, passes, memory = found_by(name, asked.given)
    except OutOfMemory:
        return {}
    return {"scores": scores, "passes": passes, "memory": memory}


MEASURES: dict[str, Callable[[Asked], Row]] = {
    "quality": quality_row,
    "datamodel": datamodel_row,
    **{name: partial(peer_row, name) for name in WAYS},
}


def strongest(scores: Sequence[float]) -> list[int]:
    """Return the numbers of passages, the largest score first."""
    return sorted(range(len(scores)), key=lambda number: -scores[number])


def spearman(one: Sequence[float], other: Sequence[float]) -> float:
    return correlation(ranks(torch.tensor(one)), ranks(torch.tensor(other)))


def quality_figures(kind: str, rows: list[Row]) -> Iterator[Figure]:
    aimed = {"effects": ("≥ 0.95", "≥ 0.7")}
    sure = [row for row in rows if strongest(row["truth"])[0] == row["planted"]]
    note = f"{_prompts(rows)}; leave-one-out has the fact first in {len(sure)}"
    for name in rows[0]["scores"]:
        first = [strongest(row["scores"][name])[0] == row["planted"] for row in sure]
        like = [spearman(row["scores"][name], row["truth"]) for row in rows]
        aims = aimed.get(name, ("", ""))
        yield Figure(f"{kind}, {name}: fact first", _mean(first), "", aims[0], note)
        yield Figure(f"{kind}, {name}: Spearman with leave-one-out", _mean(like), "", aims[1])
    for place, count in enumerate(TOPS):
        ours, best = (
            _mean([row["drops"][name][place] for row in rows])
            for name in ("effects", "leave-one-out")
        )
        note = f"{ours:.2f} of {best:.2f} nats"
        yield Figure(
            f"{kind}, top {count} of effects, loss over best", ours / best, "", "≥ 0.9", note
        )
    # What effects cost is measured in processes of their own, beside peers.
    for name in ("attention", "gradient × input"):
        spent = [row["cpu_seconds"] for row in rows if "cpu_seconds" in row]
        cost = _mean([each[name] / each["forward"] for each in spent])
        yield Figure(f"{kind}, {name}: cost in forward passes", cost, "", "", "by time of the CPU")


def datamodel_figures(kind: str, rows: list[Row]) -> Iterator[Figure]:
    scores = {"effects": [row["effects"] for row in rows]}
    scores |= {f"ContextCite, {passes} passes": cited(rows, passes) for passes in PASSES}
    found: dict[str, float] = {}
    for name, each in scores.items():
        found[name] = _mean(
            [
                spearman(
                    [sum(values[number] for number in hidden) for hidden in row["hidden"][:HALVES]],
                    row["losses"][:HALVES],
                )
                for values, row in zip(each, rows, strict=True)
            ]
        )
        yield Figure(
            f"{kind}, {name}: linear datamodeling score", found[name], "", "", _prompts(rows)
        )
    best = found[f"ContextCite, {max(PASSES)} passes"]
    yield Figure(f"{kind}, effects over ContextCite", found["effects"] / best, "", "≥ 0.8")


def peer_figures(name: str, kind: str, rows: list[Row]) -> Iterator[Figure]:
    done = [row for row in rows if "scores" in row]
    known = [row for row in done if "truth" in row]
    if known:
        first = [strongest(row["scores"])[0] == row["planted"] for row in known]
        like = [spearman(row["scores"], row["truth"]) for row in known]
        yield Figure(f"{kind}, {name}: fact first", _mean(first), "", "", _prompts(known))
        yield Figure(f"{kind}, {name}: Spearman with leave-one-out", _mean(like), "")
    too_long = "" if done else f"more than {MEMORY / 1e9:.0f} GB with the model"
    passes, memory = (_mean([row[one] for row in done]) for one in ("passes", "memory"))
    note = too_long or f"{_prompts(done)}, by time of the CPU"
    aim = "≤ 4" if name == "Regard" else ""
    yield Figure(f"{kind}, {name}: cost in forward passes", passes, "", aim, note)
    yield Figure(f"{kind}, {name}: memory beyond the model", memory / 1e9, "GB", "", too_long)


FIGURES: dict[str, Callable[[str, list[Row]], Iterator[Figure]]] = {
    "quality": quality_figures,
    "datamodel": datamodel_figures,
    **{name: partial(peer_figures, name) for name in WAYS},
}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan


def _prompts(rows: Sequence[Row]) -> str:
    return f"{len(rows)} prompt{'' if len(rows) == 1 else 's'}"


def attribute_long() -> None:
    """Attribute the longest prompt, and print times, memory and the size of its page."""
    kind = KINDS[-1]
    model, tokenizer = loaded(), AutoTokenizer.from_pretrained(smollm2())
    prompt = planted(kind, 0)
    tokens = torch.tensor([tokenizer(prompt.text)["input_ids"]])
    with torch.no_grad():
        bare = cpu_timed(lambda: model(tokens, use_cache=False, logits_to_keep=1))[1]
    before, start = peak_bytes(), time.perf_counter()
    found, spent = cpu_timed(
        lambda: regard.attribute(
            model, tokenizer, prompt.text, prompt.answer, prompt.passages, progress=False
        )
    )
    seconds = time.perf_counter() - start
    memory = peak_bytes() - before
    size = len(found.page().html)
    first = strongest(found.scores.tolist())[0] == prompt.planted
    print(tokens.shape[1], bare, spent, seconds, memory, size, float(first))


def cost() -> Iterator[Figure]:
    code = "from benchmarks.attribute import attribute_long; attribute_long()"
    length, bare, spent, seconds, size, page, first = in_child(code)
    name = f"{length:,.0f} tokens and {KINDS[-1].passages} passages"
    yield Figure(f"{name}: time", seconds, "s", "≤ 300")
    note = f"of {bare:.0f} s of the CPU"
    yield Figure(f"{name}: cost in forward passes", spent / bare, "", "≤ 4", note)
    yield Figure(f"{name}: memory beyond the model", size / 1e9, "GB", "≤ 6")
    yield Figure(f"{name}: size of the page", page / 1e6, "MB", "≤ 5")
    yield Figure(f"{name}: fact first", first, "")


def measured(part: str, kinds: Sequence[Kind], path: Path, limit: int, end: float) -> None:
    """Measure prompts that the file does not have yet, in turn, until the time is over."""
    known = {(row["part"], row["prompt"]) for row in _read(path)}
    model, tokenizer = None, None
    for kind, number, prompt in _prompts_of(kinds, limit):
        if (part, digest(prompt)) in known:
            continue
        if time.monotonic() > end:
            return
        if model is None:
            model = loaded().requires_grad_(False)
            tokenizer = AutoTokenizer.from_pretrained(smollm2())
        about = {"part": part, "kind": kind.name, "number": number, "prompt": digest(prompt)}
        row = about | MEASURES[part](Asked(model, tokenizer, prompt))
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(_rounded(row)) + "\n")


def _prompts_of(kinds: Sequence[Kind], limit: int) -> Iterator[tuple[Kind, int, Planted]]:
    for kind in kinds:
        for number in range(min(limit, kind.prompts)):
            yield kind, number, planted(kind, number)


def digest(prompt: Planted) -> str:
    return hashlib.sha256(f"{prompt.text}{prompt.answer}".encode()).hexdigest()[:16]


def _rounded(value: Any) -> Any:
    """Return an object of JSON with six digits of every number."""
    if isinstance(value, dict):
        return {name: _rounded(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_rounded(each) for each in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def _read(path: Path) -> list[Row]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def figures(part: str, kinds: Sequence[Kind], path: Path, limit: int) -> Iterator[Figure]:
    wanted = {digest(prompt) for *_, prompt in _prompts_of(kinds, limit)}
    rows = [row for row in _read(path) if row["prompt"] in wanted]
    truths = {row["prompt"]: row for row in rows if row["part"] == "quality"}
    for kind in kinds:
        mine = [
            {
                **{
                    name: value
                    for name, value in truths.get(row["prompt"], {}).items()
                    if name in ("truth", "planted")
                },
                **row,
            }
            for row in rows
            if (row["part"], row["kind"]) == (part, kind.name)
        ]
        if mine:
            yield from FIGURES[part](kind.name, mine)


def main() -> None:
    """Run what the command line asks for."""
    parser = parser_of(__doc__ or "")
    parts = ["quality", "datamodel", "peers", "cost"]
    parser.add_argument("--only", nargs="+", choices=parts, default=parts, metavar="PART")
    parser.add_argument("--prompts", type=int, default=40, help="prompts of each kind, at most")
    parser.add_argument("--minutes", type=float, default=math.inf, help="when to begin no more")
    parser.add_argument("--rows", type=Path, default=ROWS, help="where rows are kept")
    asked = parser.parse_args()
    introduce(machine(), versions("transformers"), as_json=asked.json)
    asked.rows.parent.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + 60 * asked.minutes
    for part in asked.only:
        for one in WAYS if part == "peers" else [part]:
            if one == "cost":
                found = cost()
            else:
                kinds = KINDS if part == "peers" else KINDS[:2]
                measured(one, kinds, asked.rows, asked.prompts, end)
                found = figures(one, kinds, asked.rows, asked.prompts)
            for figure in found:
                report(figure, as_json=asked.json)


if __name__ == "__main__":
    main()
