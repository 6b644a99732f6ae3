"""Heads that get a part of another run, held against attention that is written out."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import regard
from regard.interventions.patch import At, Part
from tests.capture.generating import PROMPT, padded, translator, writer
from tests.capture.traces import inputs, random, stack
from tests.capture.zoo import BATCH, ZOO, Kind, made, tokens
from tests.interventions.donor_oracle import DonorOracle
from tests.interventions.oracle import Oracle, with_oracle
from tests.interventions.test_generating import same, scores
from tests.interventions.test_models import ASKING, _module, first

pytestmark = pytest.mark.usefixtures("one_thread", "quiet_transformers")

PARTS: tuple[Part, ...] = ("output", "query", "key", "value", "weights")
INPUTS = {"query": "query", "weights": "query", "output": "output"}


def texts(kind: Kind) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return inputs of a model, and others of the same sizes."""
    given = kind.inputs("none")
    chance = torch.Generator().manual_seed(99)
    other = {
        name: torch.randint(3, 50, x.shape, generator=chance)
        if name in ("input_ids", "decoder_input_ids")
        else torch.randn(x.shape, generator=chance).to(x.dtype)
        if x.is_floating_point()
        else x
        for name, x in given.items()
    }
    return given, other


@pytest.mark.parametrize("name", ASKING)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_architectures(name: str, dtype: torch.dtype) -> None:
    within = 1e-10 if dtype == torch.float64 else 1e-5
    if dtype == torch.float64 and name == "gpt-oss":
        pytest.skip("its experts multiply in float32")
    if name == "Gemma 2":
        # Its softmax is in float32 in any dtype.
        within = max(within, 2e-6)
    kind, layer = ZOO[name], _module(ZOO[name], ASKING[name])
    model, eager = made(kind).to(dtype), with_oracle(made(kind, "eager")).to(dtype)
    given, other = (
        {key: x.to(dtype) if x.is_floating_point() else x for key, x in sides.items()}
        for sides in texts(kind)
    )
    heads = [(layer, 1), (layer, 2)]
    oracle = DonorOracle(eager)
    with torch.no_grad():
        with oracle.running():
            eager(**other)
        with regard.watch(model, values=True) as seen:
            model(**other)
        before = first(model(**given))
        for part in PARTS:
            with oracle.getting(part, heads):
                expected = first(eager(**given))
            with regard.patch(model, seen, heads, part=part):
                found = first(model(**given))
            assert (found - before).abs().max() > 100 * within
            torch.testing.assert_close(found, expected, rtol=0, atol=within)

            at = [2, range(4, 7)]
            with oracle.getting(part, heads, {2: 2, 4: 4, 5: 5, 6: 6}):
                expected = first(eager(**given))
            with regard.patch(model, seen, heads, part=part, at=at):
                found = first(model(**given))
            torch.testing.assert_close(found, expected, rtol=0, atol=within)


@pytest.mark.parametrize("part", ["output", "value"])
def test_texts_of_different_lengths(part: Part) -> None:
    model, eager = made(ZOO["Llama"]), with_oracle(made(ZOO["Llama"], "eager"))
    heads = [("layers.1.self_attn", 1)]
    given, other = tokens(), tokens(6, 9)
    oracle = DonorOracle(eager)
    at: At = [(3, 5), (range(6, 9), range(10, 13))]
    with torch.no_grad():
        with oracle.running():
            eager(other)
        with oracle.getting(part, heads, {5: 3, 10: 6, 11: 7, 12: 8}):
            expected = first(eager(given))
        with regard.watch(model, values=True) as seen:
            model(other)
        with regard.patch(model, seen, heads, part=part, at=at):
            found = first(model(given))
        # The other text is that of one sequence, for all of them.
        with regard.watch(model, values=True) as seen:
            model(other[:1])
        with regard.patch(model, seen, heads, part=part, at=at):
            of_one = first(model(given))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    torch.testing.assert_close(of_one[:1], expected[:1], rtol=0, atol=1e-5)
    assert (of_one[1:] - expected[1:]).abs().max() > 1e-3


@pytest.mark.parametrize("part", ["key", "value"])
@pytest.mark.parametrize("name", ["Llama", "gpt-oss"])
def test_key_heads(name: str, part: Part) -> None:
    """A query head alone, and all that share its key head."""
    kind = ZOO[name]
    model, eager = made(kind), with_oracle(made(kind, "eager"))
    layer = ASKING[name]
    group = model.config.num_attention_heads // model.config.num_key_value_heads
    assert group > 1
    given, other = texts(kind)
    oracle = DonorOracle(eager)
    with torch.no_grad():
        with oracle.running():
            eager(**other)
        with regard.watch(model, values=True) as seen:
            model(**other)
        for options, heads in (
            ({"heads": [(layer, group)]}, [group]),
            ({"key_heads": [(layer, 1)]}, [*range(group, 2 * group)]),
            ({"heads": [(layer, 0)], "key_heads": [(layer, 1)]}, [0, *range(group, 2 * group)]),
        ):
            with oracle.getting(part, [(layer, head) for head in heads]):
                expected = first(eager(**given))
            with (
                regard.patch(model, seen, part=part, **options),  # pyright: ignore[reportArgumentType]
                regard.watch(model, values=True) as changed,
            ):
                found = first(model(**given))
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
            changed.verify()


@pytest.mark.parametrize("attention", [None, "eager"])
@pytest.mark.parametrize("part", PARTS)
def test_what_watch_shows(part: Part, attention: str | None) -> None:
    kind, layer = ZOO["gpt-oss"], ASKING["gpt-oss"]
    model, eager = made(kind, attention), with_oracle(made(kind, "eager"))
    given, other = texts(kind)
    oracle = DonorOracle(eager)
    at = {2: 2, 5: 5}
    with torch.no_grad():
        with oracle.running():
            eager(**other)
        with oracle.getting(part, [(layer, 2)], at):
            expected = eager(**given, output_attentions=True)
        with regard.watch(model, values=True) as seen:
            model(**other)
        # Interventions come before watch, in any order of their blocks.
        with (
            regard.watch(model, values=True) as changed,
            regard.patch(model, seen, [(layer, 2)], part=part, at=[*at]),
        ):
            found = model(**given, output_attentions=attention == "eager")
    changed.verify()
    torch.testing.assert_close(first(found), first(expected), rtol=0, atol=1e-5)
    for number, call in enumerate(changed):
        weights = expected.attentions[number]
        torch.testing.assert_close(call.matrix.dense(), weights, rtol=0, atol=1e-5)
        if attention == "eager":
            torch.testing.assert_close(found.attentions[number], weights, rtol=0, atol=1e-5)


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("name", ["Llama", "GPT-2", "Gemma 2", "Mistral"])
def test_generated(name: str, part: Part) -> None:
    """Token for token as without a cache, where each step computes all positions anew."""
    layer = {"GPT-2": "transformer.h.1.attn"}.get(name, "model.layers.1.self_attn")
    model, eager = writer(name), with_oracle(writer(name, "eager"))
    prompt, other = tokens(length=PROMPT), tokens(6, PROMPT)
    there = padded("none", PROMPT)
    heads = [(layer, 1), (layer, 3)]
    oracle = DonorOracle(eager)
    with torch.no_grad():
        with oracle.running():
            eager(other, use_cache=False)
        with oracle.getting(part, heads):
            expected = scores(eager, prompt, there, use_cache=False)
        with regard.watch(model, values=True) as seen:
            model(other)
        for cache in (
            {"use_cache": True},
            {"use_cache": False},
            {"cache_implementation": "static"},
        ):
            with regard.patch(model, seen, heads, part=part):
                same(scores(model, prompt, there, **cache), expected)
        plain = scores(model, prompt, there)
    assert (plain.logits[0] - expected.logits[0]).abs().max() > 1e-3


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize(
    ("name", "layer"),
    [
        ("BART", "model.decoder.layers.0.encoder_attn"),
        ("BART", "model.decoder.layers.1.self_attn"),
        ("T5", "decoder.block.0.layer.1.EncDecAttention"),
    ],
)
def test_translated(name: str, layer: str, part: Part) -> None:
    model, eager = translator(name), with_oracle(translator(name))
    prompt, other = tokens(length=PROMPT), tokens(6, PROMPT)
    there = padded("none", PROMPT)
    oracle, at = DonorOracle(eager), {0: 0, 2: 2, 3: 3}
    written = tokens(7, 5)
    with torch.no_grad():
        with oracle.running():
            eager(other, decoder_input_ids=written)
        with oracle.getting(part, [(layer, 1)], at):
            expected = scores(eager, prompt, there, use_cache=False)
        with regard.watch(model, values=True) as seen:
            model(other, decoder_input_ids=written)
        with regard.patch(model, seen, [(layer, 1)], part=part, at=[*at]):
            same(scores(model, prompt, there), expected)
        plain = scores(model, prompt, there)
    assert (plain.logits[3] - expected.logits[3]).abs().max() > 1e-4


class TestWithOthers:
    """The order: pairs are masked, inputs patched, outputs replaced, watched."""

    layer = "layers.1.self_attn"

    def seen(self, model: nn.Module) -> regard.capture.Seen:
        with torch.no_grad(), regard.watch(model, values=True) as seen:
            model(tokens(6))
        return seen

    @pytest.mark.parametrize("part", PARTS)
    def test_masked_pairs_stay_masked(self, part: Part) -> None:
        model, eager = made(ZOO["Llama"]), with_oracle(made(ZOO["Llama"], "eager"))
        seen, kept = self.seen(model), DonorOracle(eager)
        with torch.no_grad():
            with kept.running():
                eager(tokens(6))
            oracle = DonorOracle(
                eager, lambda b, i, j: j == 2, [self.layer],
                kept=kept.kept, part=part, patched=[(self.layer, 1)],
            )  # fmt: skip
            with oracle.running():
                expected = first(eager(tokens()))
            with (
                regard.patch(model, seen, [(self.layer, 1)], part=part),
                regard.knock_out(model, regard.pairs(keys=[2]), layers=[self.layer]),
            ):
                found = first(model(tokens()))
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)

    @pytest.mark.parametrize("part", ["query", "value"])
    def test_ablated_heads_stay_ablated(self, part: Part) -> None:
        model = made(ZOO["Llama"])
        seen = self.seen(model)
        with torch.no_grad():
            with regard.ablate(model, [(1, 1)]):
                expected = first(model(tokens()))
            with regard.ablate(model, [(1, 1)]), regard.patch(model, seen, [(1, 1)], part=part):
                found = first(model(tokens()))
        assert torch.equal(found, expected)

    def test_the_later_output_counts(self) -> None:
        model = made(ZOO["Llama"])
        seen = self.seen(model)
        with torch.no_grad():
            with regard.patch(model, seen, [(1, 1)]):
                expected = first(model(tokens()))
            with regard.ablate(model, [(1, 1)]), regard.patch(model, seen, [(1, 1)]):
                assert torch.equal(first(model(tokens())), expected)
            with regard.ablate(model, [(1, 1)]):
                ablated = first(model(tokens()))
            with regard.patch(model, seen, [(1, 1)]), regard.ablate(model, [(1, 1)]):
                assert torch.equal(first(model(tokens())), ablated)

    def test_two_parts_of_one_head(self) -> None:
        """Its queries, keys and values are its output."""
        model = made(ZOO["Llama"])
        seen, heads = self.seen(model), [(1, 1)]
        with torch.no_grad():
            with regard.patch(model, seen, heads):
                expected = first(model(tokens()))
            with (
                regard.patch(model, seen, heads, part="query"),
                regard.patch(model, seen, heads, part="value"),
                regard.patch(model, seen, heads, part="key"),
            ):
                found = first(model(tokens()))
            with (
                regard.patch(model, seen, heads, part="weights"),
                regard.patch(model, seen, heads, part="value"),
            ):
                by_weights = first(model(tokens()))
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
        torch.testing.assert_close(by_weights, expected, rtol=0, atol=1e-5)


class Checkpointed(nn.Module):
    def __init__(self, *, reentrant: bool | None) -> None:
        super().__init__()
        self.blocks, self.reentrant = stack(), reentrant

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            again = self.reentrant
            x = block(x) if again is None else checkpoint(block, x, use_reentrant=again)
        return x


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("part", PARTS)
def test_under_checkpoints(part: Part, reentrant: bool) -> None:
    gradients: list[Tensor] = []
    for again in (None, reentrant):
        model = Checkpointed(reentrant=again)
        with regard.watch(model, values=True) as seen:
            model(inputs(1).requires_grad_())
        x = inputs().requires_grad_()
        with regard.patch(model, seen, [("blocks.1", 1)], part=part):
            model(x).square().sum().backward()
        assert x.grad is not None
        gradients.append(x.grad)
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("attention", [None, "eager"])
@pytest.mark.parametrize("part", PARTS)
def test_gradients(part: Part, attention: str | None) -> None:
    kind, layer = ZOO["Llama"], "layers.0.self_attn"
    model = made(kind, attention).double()
    eager = with_oracle(made(kind, "eager")).double()
    oracle = DonorOracle(eager)
    embedded, other = (random(BATCH, 9, model.config.hidden_size, seed=n).double() for n in (1, 2))
    with torch.no_grad(), oracle.running(), regard.watch(model, values=True) as seen:
        eager(inputs_embeds=other)
        model(inputs_embeds=other)
    gradients: list[Tensor] = []
    for which, context in (
        (eager, oracle.getting(part, [(layer, 1)])),
        (model, regard.patch(model, seen, [(layer, 1)], part=part)),
    ):
        x = embedded.clone().requires_grad_()
        with context:
            first(which(inputs_embeds=x)).square().sum().backward()
        assert x.grad is not None
        gradients.append(x.grad)
    # Eager attention of transformers has its softmax in float32.
    within = 1e-9 if attention is None else 1e-4
    torch.testing.assert_close(gradients[1], gradients[0], rtol=0, atol=within)


INTERVENTIONS = ("knock_out", "steer", *PARTS)


@pytest.mark.parametrize("name", INTERVENTIONS)
def test_gradients_of_a_learned_bias(name: Any) -> None:
    """Of T5, whose bias reaches the kernel as numbers that require gradients."""
    kind = ZOO["T5"]
    layer = _module(kind, "encoder.block.0.layer.0.SelfAttention")
    model, eager = made(kind).double(), with_oracle(made(kind, "eager")).double()
    given, other = texts(kind)
    keys = regard.pairs(keys=[2])
    kept = DonorOracle(eager)
    with torch.no_grad(), kept.running(), regard.watch(model, values=True) as seen:
        eager(**other)
        model(**other)
    ours, truth = {
        "knock_out": lambda: (
            regard.knock_out(model, keys, layers=[layer]),
            Oracle(eager, _second_key, [layer]).running(),
        ),
        "steer": lambda: (
            regard.steer(model, keys, factor=3.0, layers=[layer]),
            Oracle(eager, _second_key, [layer], factor=3.0).running(),
        ),
    }.get(
        name,
        lambda: (
            regard.patch(model, seen, [(layer, 1)], part=name),
            kept.getting(name, [(layer, 1)]),
        ),
    )()
    gradients: list[dict[str, Tensor]] = []
    for which, context in ((model, ours), (eager, truth)):
        with context:
            first(which(**given)).square().sum().backward()
        weights = which.named_parameters()
        gradients.append({path: x.grad for path, x in weights if x.grad is not None})
    assert any("relative_attention_bias" in path for path in gradients[0])
    for path, expected in gradients[1].items():
        within = 1e-6 * float(expected.abs().max())
        torch.testing.assert_close(gradients[0][path], expected, rtol=0, atol=within)


def _second_key(batch: Tensor, query: Tensor, key: Tensor) -> Tensor:
    return key == 2
