"""Scores of passages, held against attention with a dense mask."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import (
    AttentionInterface,
    BertConfig,
    BertLMHeadModel,
    BloomConfig,
    BloomForCausalLM,
    FalconConfig,
    FalconForCausalLM,
    Gemma3Config,
    Gemma3ForConditionalGeneration,
    JambaConfig,
    JambaForCausalLM,
    MambaConfig,
    MambaForCausalLM,
    OPTConfig,
    OPTForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
)

import regard
from regard.attribution import (
    Attribution,
    HeadLooks,
    HiddenPassages,
    Passage,
    checkpointing,
    scoring,
)
from regard.attribution.attribute import attribute
from regard.attribution.decoder import check_decoder
from tests.attribution.models import (
    WORDS,
    decoder,
    tokenizer,
    tokenizer_that_begins_with_a_space,
)
from tests.checkpointing import checkpointed
from tests.small import GROUPED, HIDDEN, SIZES, T5

PROMPT = (
    "The sea was calm .\nHarriet bought a violin .\nOliver bought a kite .\nwhat did Harriet buy ?"
)
ANSWER = "Harriet bought a violin"
LINES = [range(5), range(5, 10), range(10, 15), range(15, 20)]


def tokens() -> Tensor:
    return torch.tensor([tokenizer()(PROMPT + " " + ANSWER)["input_ids"]])


def masked_log_prob(mask: Tensor) -> Tensor:
    """Return the log-probability of the answer under a mask that is added, [1, 1, n, n]."""
    ids = tokens()
    logits = decoder()(ids, attention_mask=mask).logits[0]
    found = logits.log_softmax(dim=-1)[:-1].gather(1, ids[0, 1:, None])
    return found[-4:].sum()


def causal_mask(hidden: Sequence[range] = ()) -> Tensor:
    size = tokens().shape[1]
    mask = torch.zeros(1, 1, size, size, dtype=torch.float64)
    mask.masked_fill_(torch.ones(size, size).triu(1).bool(), torch.finfo(torch.float64).min)
    for span in hidden:
        others = [row for row in range(size) if row not in span]
        mask[0, 0, others, span.start : span.stop] = torch.finfo(torch.float64).min
    return mask


def run(**options: Any) -> regard.attribution.Attribution:
    return attribute(decoder(), tokenizer(), PROMPT, ANSWER, "lines", **options)


def test_effects_are_gradients_of_scores_from_outside() -> None:
    mask = causal_mask().requires_grad_()
    masked_log_prob(mask).backward()
    assert mask.grad is not None
    expected: list[float] = []
    for span in LINES:
        outside = [row for row in range(mask.shape[2]) if row not in span]
        expected.append(mask.grad[0, 0, outside, span.start : span.stop].sum().item())
    found = run()
    assert [passage.tokens for passage in found.passages] == LINES
    torch.testing.assert_close(
        found.scores.double(), torch.tensor(expected, dtype=torch.float64), rtol=1e-10, atol=1e-12
    )
    assert found.by_head is not None
    assert found.by_head.shape == (3, 4, 4)
    torch.testing.assert_close(found.by_head.sum(dim=(0, 1)), found.scores)
    assert found.log_prob == pytest.approx(masked_log_prob(causal_mask()).item())


def test_log_probabilities_are_not_rounded_to_the_dtype_of_a_model() -> None:
    model, ids = decoder().bfloat16(), tokens()
    with torch.no_grad():
        logits = model(ids, use_cache=False, logits_to_keep=5).logits[0, :-1].double()
    truth = float(logits.log_softmax(dim=-1).gather(1, ids[0, -4:, None]).sum())
    for how in ("effects", "leave-one-out"):
        found = attribute(model, tokenizer(), PROMPT, ANSWER, "lines", how=how)
        assert found.log_prob == pytest.approx(truth, abs=1e-5)


def test_leaving_one_out_is_a_run_under_a_mask() -> None:
    found = run(how="leave-one-out")
    whole = masked_log_prob(causal_mask())
    truth = [(whole - masked_log_prob(causal_mask([span]))).item() for span in LINES]
    assert found.scores.tolist() == pytest.approx(truth, abs=1e-10)
    checked = run().verify(2)
    assert sorted(checked.passages) == [0, 1, 2, 3]
    assert checked.exact.tolist() == pytest.approx([truth[n] for n in checked.passages], abs=1e-10)
    assert -1.0 <= checked.spearman <= 1.0


def test_verify_hides_one_passage_at_least() -> None:
    with pytest.raises(ValueError, match="count must be"):
        run().verify(0)


def test_attention_is_the_mean_weight_that_a_passage_gets() -> None:
    with torch.no_grad():
        weights = decoder("eager")(tokens(), output_attentions=True).attentions
    rows = torch.stack(weights)[:, 0, :, -5:-1].mean(dim=2)
    expected = torch.stack(
        [rows[..., span.start : span.stop].sum(dim=-1) for span in LINES], dim=-1
    )
    found = run(how="attention")
    torch.testing.assert_close(found.by_head, expected.to(found.by_head.dtype) / 12)  # pyright: ignore[reportOptionalMemberAccess]


def test_the_tokens_of_an_answer_add_up_to_it() -> None:
    each, whole = run(each_token=True), run()
    assert each.by_token is not None
    assert each.by_token.shape == (4, 4)
    torch.testing.assert_close(each.by_token.sum(dim=0), whole.scores)
    torch.testing.assert_close(each.scores, whole.scores)
    hidden = run(how="leave-one-out")
    torch.testing.assert_close(hidden.by_token.sum(dim=0), hidden.scores)  # pyright: ignore[reportOptionalMemberAccess]


def test_looks_are_gradients_of_single_heads() -> None:
    size = tokens().shape[1]
    masks: list[Tensor] = []

    def masked(module: Any, args: Any, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        masks.append(causal_mask().expand(1, 4, size, size).clone().requires_grad_())
        return args, options | {"attention_mask": masks[-1]}

    model = decoder()
    for layer in model.model.layers:
        layer.self_attn.register_forward_pre_hook(masked, with_kwargs=True)
    found = model(tokens()).logits[0].log_softmax(dim=-1)[:-1].gather(1, tokens()[0, 1:, None])
    found[-4:].sum().backward()
    # Transformers normalises in float32, whose rounding depends on how masks are applied.
    close = {"rtol": 1e-4, "atol": 1e-6}
    for result in (run(), run(each_token=True)):
        assert result.looks is not None
        assert result.by_head is not None
        for number, (span, heads) in enumerate(zip(LINES, result.looks, strict=True)):
            order = result.by_head[:, :, number].flatten().abs().argsort(descending=True)
            assert [4 * one.layer + one.head for one in heads] == order[:8].tolist()
            for one in heads:
                grad = masks[one.layer].grad
                assert grad is not None
                effects = grad[0, one.head, span.stop :, span.start : span.stop]
                torch.testing.assert_close(one.by_key, effects.sum(dim=0), **close)
                by_query = effects.sum(dim=1)
                found_at = [query - span.stop for query in one.queries]
                torch.testing.assert_close(one.by_query, by_query[found_at], **close)
                largest = by_query.abs().sort(descending=True).values[:8]
                torch.testing.assert_close(one.by_query.abs(), largest, **close)
                whole = result.by_head[one.layer, one.head, number]
                torch.testing.assert_close(one.by_key.sum(), whole.to(one.by_key.dtype))


def test_looks_are_the_same_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = run().looks
    monkeypatch.setattr(scoring, "_PAIRS", 16)
    cut = run().looks
    assert whole is not None
    assert cut is not None
    for one, other in zip(chain(*whole), chain(*cut), strict=True):
        torch.testing.assert_close(other.by_key, one.by_key)
        torch.testing.assert_close(other.by_query, one.by_query)
        assert other.queries == one.queries


def test_checkpointing_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = run()
    monkeypatch.setattr(checkpointing, "_KEPT_BYTES", 0)
    model = decoder()
    found = attribute(model, tokenizer(), PROMPT, ANSWER, "lines")
    torch.testing.assert_close(found.scores, plain.scores)
    assert found.checkpointed
    assert "layers were computed again" in found.table()
    assert any("layers were computed again" in note for note in found.notes)
    assert not plain.checkpointed
    assert "computed again" not in plain.table()
    assert not any(getattr(one, "gradient_checkpointing", False) for one in model.modules())
    assert not any("forward" in vars(module) for module in model.modules())
    assert not any(module.training for module in model.modules())
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize(("kept", "again"), [(0, 3), (1, 2), (2.9, 1)])
def test_as_many_of_the_first_layers_are_computed_again_as_need_be(
    kept: float, again: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A limit that some layers fit in."""
    model, plain = decoder(), run()
    with checkpointing.frozen(model):
        whole = tokens().numel() * checkpointing.bytes_per_token(model, tokens())
    monkeypatch.setattr(checkpointing, "_KEPT_BYTES", int(kept / 3 * whole))
    ran: list[nn.Module] = []
    for layer in model.model.layers:
        layer.self_attn.register_forward_pre_hook(lambda module, _: ran.append(module))
    found = attribute(model, tokenizer(), PROMPT, ANSWER, "lines")
    forward = [layer.self_attn for layer in model.model.layers]
    assert ran[-3 - again :] == [*forward, *reversed(forward[:again])]
    assert found.checkpointed
    torch.testing.assert_close(found.scores, plain.scores)


def test_models_that_were_told_to_checkpoint_do_so_in_evaluation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """transformers itself does in training only."""
    model, plain = decoder(), run()
    checkpointed(model)
    monkeypatch.setattr(checkpointing, "_KEPT_BYTES", 0)
    found = attribute(model, tokenizer(), PROMPT, ANSWER, "lines")
    assert found.checkpointed
    torch.testing.assert_close(found.scores, plain.scores)


def test_models_with_a_text_model_inside_are_checkpointed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their sizes are those of the text model."""
    torch.manual_seed(0)
    text = GROUPED | {"vocab_size": len(WORDS), "sliding_window": 9}
    vision = {**HIDDEN, "image_size": 8, "patch_size": 4}
    config = Gemma3Config(text_config=text, vision_config=vision, mm_tokens_per_image=4)
    model = Gemma3ForConditionalGeneration(config).eval()
    plain = attribute(model, tokenizer(), PROMPT, ANSWER, "lines")
    assert not plain.checkpointed
    monkeypatch.setattr(checkpointing, "_KEPT_BYTES", 0)
    found = attribute(model, tokenizer(), PROMPT, ANSWER, "lines")
    assert found.checkpointed
    torch.testing.assert_close(found.scores, plain.scores)


def test_of_a_sure_answer_is_said_that_effects_understate() -> None:
    assert run().notes == []
    model = decoder()
    # Its tied weights would change what it reads too.
    model.lm_head.weight = torch.nn.Parameter(1e4 * model.lm_head.weight.detach())
    found = attribute(model, tokenizer(), PROMPT, None, "lines")
    assert found.log_prob > -0.01
    (note,) = found.notes
    assert "understate" in note
    assert note in found.table()
    assert attribute(model, tokenizer(), PROMPT, None, "lines", how="leave-one-out").notes == []


def test_nothing_is_dropped_in_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers of OPT drop numbers by themselves if they are in training."""
    torch.manual_seed(0)
    sizes = SIZES | {"vocab_size": len(WORDS), "ffn_dim": 24, "word_embed_proj_dim": 24}
    model = OPTForCausalLM(OPTConfig(**sizes, dropout=0.5)).eval()
    plain = attribute(model, tokenizer(), PROMPT, ANSWER, "lines")
    monkeypatch.setattr(checkpointing, "_KEPT_BYTES", 0)
    found = attribute(model, tokenizer(), PROMPT, ANSWER, "lines")
    assert found.checkpointed
    torch.testing.assert_close(found.scores, plain.scores)


@pytest.mark.parametrize(
    "model",
    [
        lambda: BloomForCausalLM(
            BloomConfig(**SIZES | {"vocab_size": len(WORDS), "n_layer": 2, "n_head": 4})
        ),
        lambda: FalconForCausalLM(FalconConfig(**SIZES | {"vocab_size": len(WORDS)})),
    ],
    ids=["BLOOM", "Falcon"],
)
def test_checkpoints_of_models_with_attention_of_their_own(
    model: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A softmax, or a kernel that they call themselves, is seen again in the backward pass."""
    torch.manual_seed(0)
    made = model().eval()
    plain = attribute(made, tokenizer(), PROMPT, ANSWER, "lines")
    monkeypatch.setattr(checkpointing, "_KEPT_BYTES", 0)
    found = attribute(made, tokenizer(), PROMPT, ANSWER, "lines")
    assert found.checkpointed
    assert plain.scores.abs().max() > 1e-3
    torch.testing.assert_close(found.scores, plain.scores)
    torch.testing.assert_close(found.by_head, plain.by_head)


def test_the_answer_is_generated_if_there_is_none() -> None:
    found = attribute(decoder(), tokenizer(), PROMPT, passages="lines", max_new_tokens=3)
    assert len(found.answer_tokens) == 3
    again = attribute(decoder(), tokenizer(), PROMPT, found.answer, "lines")
    torch.testing.assert_close(again.scores, found.scores)


def test_it_says_what_it_found() -> None:
    found = run()
    (best, score), *_ = found.top(2)
    assert score == found.scores.max().item()
    first, *lines = found.table().splitlines()
    assert first.startswith(f"answer: {ANSWER}  (log-probability {found.log_prob:.2f}; by effects)")
    assert len(lines) == 4
    assert best.text in lines[0]
    assert f"{score:+.3f}" in lines[0]
    assert repr(found).startswith("Attribution(4 passages, how='effects')\nanswer: ")
    assert repr(found.verify(1)).splitlines()[-1].startswith("Spearman ")


def with_scores(scores: Sequence[float]) -> Attribution:
    """Return an attribution of as many passages with these scores."""
    found = run()
    passages = [replace(found.passages[0], text=f"passage {n}") for n in range(len(scores))]
    unknown = {"by_head": None, "by_token": None, "looks": None}
    return replace(found, passages=passages, scores=torch.tensor(scores), **unknown)


def listed_in(table: str) -> list[int]:
    return [int(number) for number in re.findall(r"passage (\d+)$", table, re.MULTILINE)]


def test_the_strongest_of_either_sign_are_never_left_out() -> None:
    # The strongest opponent was left out of six, though it was stronger than all others.
    found = with_scores([0.9, 0.5, -3.47, 0.4, 0.3, 0.2])
    assert listed_in(repr(found)) == [0, 1, 3, 4, 5, 2]
    assert listed_in(found.table()) == [0, 1, 3, 4, 5, 2]
    some = found.table(3)
    assert listed_in(some) == [0, 1, 2]
    assert some.splitlines()[-1] == "3 other passages, +0.200 to +0.400"
    assert listed_in(found.table(5)) == [0, 1, 3, 4, 2]
    assert found.table(5).endswith("\n1 other passage, +0.200")
    opposing = with_scores([-3.0, -2.0, 0.1, -1.0])
    assert listed_in(opposing.table(2)) == [2, 0]
    assert listed_in(opposing.table(1)) == [0]
    many = with_scores([float(-n) for n in range(25)])
    assert "5 other passages" in repr(many)
    assert listed_in(repr(many))[-1] == 24
    with pytest.raises(ValueError, match="count must be at least 1, got 0"):
        found.table(0)


def test_measured_passages_are_ranked_by_what_was_measured() -> None:
    found = with_scores([0.297, 0.5, -0.4, 0.02])
    exact = torch.tensor([-1.389, 2.0, -0.5, 0.01])
    checked = HiddenPassages([0, 1, 2, 3], found.scores, exact, "effects")
    assert checked.disagreements == {0: "opposite sign", 1: "4 × the score"}
    assert "opposite sign" in repr(checked).splitlines()[1]
    table = found.table(checked=checked)
    assert listed_in(table) == [1, 3, 2, 0]
    *_, last = table.splitlines()
    assert last.split()[:4] == ["+0.297", "-1.389", "opposite", "sign"]
    # Of those that were not measured, the score is known.
    some = HiddenPassages([0], found.scores[:1], exact[:1], "effects")
    assert listed_in(found.table(checked=some)) == [1, 3, 2, 0]
    assert listed_in(found.table()) == [1, 0, 3, 2]
    weights = replace(checked, how="attention")
    assert weights.disagreements == {}
    assert listed_in(found.table(checked=weights)) == [1, 0, 3, 2]


@pytest.mark.parametrize(
    ("score", "loss", "said"),
    [
        (0.05, -0.05, ""),
        (0.05, -0.2, "opposite sign"),
        (1.0, 2.9, ""),
        (1.0, 3.5, "3.5 × the score"),
        (-1.0, -0.25, "0.25 × the score"),
        (0.0, 0.5, "the score is 0"),
        (0.5, 0.0, "0 × the score"),
    ],
)
def test_what_disagrees(score: float, loss: float, said: str) -> None:
    one = HiddenPassages([7], torch.tensor([score]), torch.tensor([loss]), "effects")
    assert one.disagreements == ({7: said} if said else {})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"how": "magic"}, "how must be one of"),
        ({"max_new_tokens": 0}, "max_new_tokens must be at least 1, got 0"),
        ({"answer": " "}, "the answer has no tokens, got ' '"),
        ({"answer": "a zzz"}, "answer must be made of known tokens, got 'a zzz', which is"),
        ({"answer": "a \ud800"}, "answer must be Unicode text, got the lone surrogate '\\ud800'"),
        ({"answer": ["a"]}, "answer must be a text, got ['a']"),
        ({"prompt": " \n "}, "the prompt has no passages"),
        ({"prompt": [{"content": "The sea"}]}, "a message must have a role and a text as content"),
        ({"prompt": "The sea\udc80"}, "surrogate '\\udc80' at character 7"),
        ({"prompt": [{"role": "user", "content": "a \udc80"}]}, "prompt must be Unicode text, got"),
        ({"passages": None}, "passages must be one of paragraphs, lines, sentences, a list of"),
        ({"passages": [3]}, "a passage must be a text or a span (start, stop), got 3"),
        ({"passages": [(0.0, 4.0)]}, "a passage must be a text or a span (start, stop), got (0.0"),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, Any], message: str) -> None:
    given = {"prompt": PROMPT, "answer": ANSWER, "passages": "lines"} | options
    with pytest.raises((TypeError, ValueError), match=re.escape(message)):
        attribute(decoder(), tokenizer(), **given)


@pytest.mark.parametrize(
    ("prompt", "answer", "tokens"),
    [("a b\nb c\na", " c", ["▁c"]), ("a b\nb c\n", "c", ["c"]), ("a b\n", "c a", ["c", "▁a"])],
)
def test_the_answer_does_not_begin_a_text(prompt: str, answer: str, tokens: list[str]) -> None:
    found = attribute(decoder(), tokenizer_that_begins_with_a_space(), prompt, answer, "lines")
    assert found.answer_tokens == tokens
    chat = tokenizer()
    chat.add_bos_token = True
    messages = [{"role": "user", "content": PROMPT}]
    assert attribute(decoder(), chat, messages, " a kite", "lines").answer_tokens == ["a", "kite"]


def test_an_answer_that_would_change_the_prompt_is_refused() -> None:
    words = tokenizer_that_begins_with_a_space()
    rule = "the answer 'c' can't go on after the last token of the prompt, '▁': move a space"
    with pytest.raises(ValueError, match=rule):
        attribute(decoder(), words, "a b\na ", "c", "lines")


def test_what_goes_past_attention_is_said() -> None:
    """State-space layers carry a passage on that nobody attends to."""
    torch.manual_seed(0)
    sizes = GROUPED | {"vocab_size": len(WORDS), "num_experts": 1, "mamba_d_state": 4}
    kinds = {"attn_layer_period": 2, "attn_layer_offset": 1, "use_mamba_kernels": False}
    model = JambaForCausalLM(JambaConfig(**sizes, **kinds)).eval()
    for how in ("effects", "leave-one-out"):
        found = attribute(model, tokenizer(), PROMPT, ANSWER, "lines", how=how)
        assert found.bypassed
        (note,) = found.notes
        assert "past attention" in note
        assert note in found.table()
    assert run().bypassed is False
    alike = attribute(decoder(), tokenizer(), "a a\na", "a", "lines")
    assert alike.bypassed is False


def test_what_goes_past_attention_that_is_not_understood_is_not_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = AttentionInterface._global_mapping["sdpa"]

    def doubled(*args: Any, **options: Any) -> tuple[Tensor, None]:
        return 2 * own(*args, **options)[0], None

    monkeypatch.setitem(AttentionInterface._global_mapping, "sdpa", doubled)
    assert check_decoder(decoder(), tokens()) is None
    monkeypatch.undo()
    assert check_decoder(decoder(), tokens()) is False
    assert "can't be told" in replace(run(), bypassed=None).table()


def test_models_without_attention_are_refused() -> None:
    torch.manual_seed(0)
    sizes = {"vocab_size": len(WORDS), "hidden_size": 24, "num_hidden_layers": 1}
    model = MambaForCausalLM(MambaConfig(**sizes, state_size=4)).eval()
    with pytest.raises(ValueError, match="MambaForCausalLM has called no attention"):
        attribute(model, tokenizer(), PROMPT, ANSWER, "lines")
    with pytest.raises(RuntimeError, match="no attention was seen"):
        attribute(model, tokenizer(), PROMPT, ANSWER, "lines", how="attention")


def test_models_without_logits_are_refused() -> None:
    with pytest.raises(ValueError, match="LlamaModel returns no logits: use AutoModelForCausalLM"):
        attribute(decoder().model, tokenizer(), PROMPT, ANSWER, "lines")


def test_what_has_no_number_is_refused() -> None:
    model = decoder()
    bias = torch.zeros(len(WORDS), dtype=torch.float64)
    bias[WORDS["violin"]] = -torch.inf
    model.lm_head.bias = torch.nn.Parameter(bias)
    for how in ("effects", "leave-one-out"):
        with pytest.raises(ValueError, match="the answer has a log-probability of -inf"):
            attribute(model, tokenizer(), PROMPT, ANSWER, "lines", how=how)
    torch.nn.init.constant_(model.lm_head.bias, torch.nan)
    with pytest.raises(ValueError, match="LlamaForCausalLM returns NaN"):
        attribute(model, tokenizer(), PROMPT, ANSWER, "lines")


def test_prompts_beyond_the_positions_of_a_model_are_refused() -> None:
    sizes = SIZES | {"vocab_size": len(WORDS), "ffn_dim": 24, "word_embed_proj_dim": 24}
    model = OPTForCausalLM(OPTConfig(**sizes, max_position_embeddings=20)).eval()
    with pytest.raises(ValueError, match="has no embedding for some of these 24 tokens"):
        attribute(model, tokenizer(), PROMPT, ANSWER, "lines")


def test_long_words_are_cut() -> None:
    found = run()
    word = "長" * 100
    some = [replace(found.passages[0], text=word), *found.passages[1:]]
    assert f"{word[:70]} …" in replace(found, passages=some).table()
    with pytest.raises(ValueError, match="count must be at least 1, got -1"):
        found.top(-1)


def test_a_token_that_is_spelled_out_is_not_unknown() -> None:
    found = attribute(decoder(), tokenizer(), PROMPT, "a [UNK]", "lines")
    assert found.answer_tokens == ["a", "[UNK]"]


def test_encoders_are_refused() -> None:
    encoder = BertLMHeadModel(BertConfig(**SIZES | {"vocab_size": len(WORDS)})).eval()
    with pytest.raises(
        ValueError, match="BertLMHeadModel attends to later tokens: a decoder is needed"
    ):
        attribute(encoder, tokenizer(), PROMPT, ANSWER, "lines")
    both = T5ForConditionalGeneration(T5Config(**T5)).eval()
    with pytest.raises(ValueError, match="T5ForConditionalGeneration is an encoder–decoder"):
        attribute(both, tokenizer(), PROMPT, ANSWER, "lines")


def test_models_in_training_are_refused() -> None:
    rule = r"^LlamaForCausalLM is in training mode: call model.eval\(\) first$"
    with pytest.raises(ValueError, match=rule):
        attribute(decoder().train(), tokenizer(), PROMPT, ANSWER, "lines")


def test_the_page_of_a_long_prompt_is_small() -> None:
    """8,192 tokens in 256 passages, of a model with 30 layers of 9 heads, in less than 5 MB."""
    small, length, passages = run(), 32, 256
    generator = torch.Generator().manual_seed(0)

    def numbers(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    looks = [
        [
            HeadLooks(layer, 0, numbers(length), list(range(8000, 8008)), numbers(8))
            for layer in range(8)
        ]
        for _ in range(passages)
    ]
    long = replace(
        small,
        prompt_tokens=[" whaling"] * length * passages,
        answer_tokens=["Ġwhale"] * 64,
        passages=[
            Passage("", 0, 0, range(length * number, length * (number + 1)))
            for number in range(passages)
        ],
        scores=numbers(passages),
        by_head=numbers(30, 9, passages),
        by_token=numbers(64, passages),
        looks=looks,
    )
    assert len(long.page().html) < 5_000_000
