"""Models of transformers on `attend`: the same numbers as on their own attention."""

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn
from transformers import masking_utils
from transformers.models.timm_wrapper import modeling_timm_wrapper

import regard
import regard.hf
from regard.hf.attention import LAYER_PATTERN, attention
from regard.hf.masks import PatternMask, mask
from regard.patterns import Pattern
from tests import small
from tests.installed import needs_asking, needs_config
from tests.small import BART, EXPERTS, T5, with_strong_biases

pytestmark = pytest.mark.usefixtures("one_thread", "quiet_transformers")

SIZES = {**small.SIZES, "num_hidden_layers": 3}
GROUPED = {**small.GROUPED, "num_hidden_layers": 3}

MOE = {"num_experts": 2, "num_experts_per_tok": 1, "shared_expert_intermediate_size": 8}

DECODERS = {
    "llama": (transformers.LlamaForCausalLM, transformers.LlamaConfig(**GROUPED)),
    "window": (
        transformers.MistralForCausalLM,
        transformers.MistralConfig(**GROUPED, sliding_window=9),
    ),
    # As it is by default: a window of 0 in layers that have none.
    "window of 0": (
        transformers.Qwen2MoeForCausalLM,
        transformers.Qwen2MoeConfig(
            **SIZES, num_key_value_heads=2, **MOE, moe_intermediate_size=8, sliding_window=0
        ),
    ),
    "softcap": (
        transformers.Gemma2ForCausalLM,
        transformers.Gemma2Config(**GROUPED, sliding_window=9),
    ),
    "sinks": (
        transformers.GptOssForCausalLM,
        transformers.GptOssConfig(**GROUPED, **EXPERTS, sliding_window=9),
    ),
}
OTHERS = {
    "bert": (transformers.BertModel, transformers.BertConfig(**SIZES)),
    "window on both sides": (
        transformers.ModernBertModel,
        transformers.ModernBertConfig(**SIZES, local_attention=8),
    ),
    # They make masks of one row.
    "one row": (transformers.LayoutLMModel, transformers.LayoutLMConfig(**SIZES)),
    "markup": (
        transformers.MarkupLMModel,
        transformers.MarkupLMConfig(**{**SIZES, "vocab_size": 250}),
    ),
    "cross": (transformers.BartModel, transformers.BartConfig(**BART)),
    "position bias": (transformers.T5EncoderModel, transformers.T5Config(**T5)),
}


BY_THEMSELVES = {
    "bloom": (
        transformers.BloomModel,
        {"vocab_size": 50, "hidden_size": 24, "n_layer": 2, "n_head": 4},
    ),
    "mpt": (
        transformers.MptModel,
        {"vocab_size": 50, "d_model": 24, "n_layers": 2, "n_heads": 4},
    ),
    "mpnet": (transformers.MPNetModel, SIZES),
    "mvp": (transformers.MvpModel, BART),
    "fsmt": (
        transformers.FSMTModel,
        {"src_vocab_size": 50, "tgt_vocab_size": 50, "encoder_layers": 1, "decoder_layers": 1},
    ),
    "openai-gpt": (
        transformers.OpenAIGPTModel,
        {"vocab_size": 50, "n_embd": 24, "n_layer": 2, "n_head": 4, "n_positions": 64},
    ),
}
"""Models that compute attention without asking which."""


def made(kind: Any, config: Any) -> Any:
    torch.manual_seed(3)
    model = kind._from_config(config, attn_implementation="eager").eval()
    return with_strong_biases(model)


def tokens(batch: int = 3, length: int = 40) -> Tensor:
    return torch.randint(3, 50, (batch, length), generator=torch.Generator().manual_seed(5))


def real(side: str, *, length: int = 40) -> Tensor:
    """Return which of three sequences' positions are real, [3, length]."""
    where = torch.arange(length)
    counts = torch.tensor([length, length - 7, 5])[:, None]
    return (where >= length - counts if side == "left" else where < counts).long()


def same(found: Tensor, expected: Tensor) -> None:
    """Hold float32 results of a few layers against each other: sums of some hundred terms each."""
    within = 1000 * torch.finfo(torch.float32).eps * max(1.0, expected.abs().max().item())
    torch.testing.assert_close(found, expected, rtol=0, atol=within)


@torch.no_grad()
def before_and_after(model: Any, **inputs: Any) -> tuple[Tensor, Tensor]:
    before = model(**inputs)[0]
    return before, regard.hf.use(model)(**inputs)[0]


@pytest.mark.parametrize("padded", ["no", "left", "right"])
@pytest.mark.parametrize("name", [*DECODERS, *OTHERS])
def test_same_as_eager(name: str, padded: str) -> None:
    kind, config = (DECODERS | OTHERS)[name]
    needs_asking(kind)
    model = made(kind, config)
    inputs = {"input_ids": tokens()}
    if padded != "no":
        inputs["attention_mask"] = real(padded)
    before, after = before_and_after(model, **inputs)
    assert torch.isfinite(after).all()
    if padded != "no":
        chosen = inputs["attention_mask"].bool()
        # The positions of Bart's decoder count as those of its encoder do.
        before, after = before[chosen], after[chosen]
    same(after, before)


def test_pictures() -> None:
    sizes = {k: v for k, v in SIZES.items() if k not in ("vocab_size", "bos_token_id")}
    config = transformers.ViTConfig(**sizes, image_size=24, patch_size=4)
    model = made(transformers.ViTModel, config)
    images = torch.rand(2, 3, 24, 24, dtype=torch.float32)
    before, after = before_and_after(model, pixel_values=images)
    same(after, before)


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("name", DECODERS)
def test_generation(name: str, cache: str) -> None:
    model = made(*DECODERS[name])
    options = {
        "attention_mask": real("left"),
        "max_new_tokens": 20,
        "do_sample": False,
        "cache_implementation": cache,
        "disable_compile": True,
    }
    before = model.generate(tokens(), **options)
    after = regard.hf.use(model).generate(tokens(), **options)
    assert before.shape == (3, 60)
    assert torch.equal(after, before)


def test_gradients() -> None:
    model = made(*DECODERS["sinks"]).train()
    found = []
    for _ in range(2):
        model.zero_grad()
        model(tokens()).logits.square().mean().backward()
        found.append({name: weight.grad for name, weight in model.named_parameters()})
        regard.hf.use(model)
    before, after = found
    assert any("sinks" in name for name in before)
    for name, grad in before.items():
        same(after[name], grad)


def test_packed_sequences() -> None:
    model = made(*DECODERS["llama"])
    positions = torch.cat([torch.arange(11), torch.arange(29)])[None].expand(3, -1)
    before, after = before_and_after(
        model, input_ids=tokens(), position_ids=positions, use_cache=False
    )
    same(after, before)
    alone = model(tokens()[:, 11:]).logits
    same(after[:, 11:], alone.detach())


@pytest.mark.parametrize("heads", [1, 4])
@pytest.mark.parametrize("kind", ["boolean", "additive"])
def test_masks_of_ones_own(kind: str, heads: int) -> None:
    model = made(*DECODERS["llama"])
    chance = torch.Generator().manual_seed(7)
    allowed = torch.rand(3, heads, 40, 40, generator=chance) < 0.4
    allowed |= torch.eye(40, dtype=torch.bool)
    added = torch.zeros(allowed.shape, dtype=torch.float32).masked_fill(~allowed, -1e30)
    with torch.no_grad():
        before = model(tokens(), attention_mask=added).logits
        given = allowed if kind == "boolean" else added
        after = regard.hf.use(model)(tokens(), attention_mask=given).logits
    same(after, before)


@torch.no_grad()
@pytest.mark.parametrize("heads", [1, 4])
@pytest.mark.parametrize("kind", ["boolean", "additive"])
def test_masks_of_one_row(kind: str, heads: int) -> None:
    """A mask that is the same for all queries, [batch, heads or 1, 1, keys]."""
    model = made(*OTHERS["bert"])
    allowed = torch.rand(3, heads, 1, 40, generator=torch.Generator().manual_seed(7)) < 0.4
    allowed[..., 0] = True
    added = torch.zeros(allowed.shape, dtype=torch.float32).masked_fill(~allowed, -1e30)
    with torch.no_grad():
        before = model(tokens(), attention_mask=added)[0]
        given = allowed if kind == "boolean" else added
        after = regard.hf.use(model)(tokens(), attention_mask=given)[0]
    same(after, before)


def test_a_window_on_all_layers_is_the_model_that_has_one() -> None:
    kind, config = DECODERS["window"]
    has_one = made(kind, config)
    had_none = made(kind, transformers.MistralConfig(**GROUPED, sliding_window=None))
    regard.hf.use(had_none, pattern=regard.window(before=8))
    expected = has_one(tokens()).logits
    same(had_none(tokens()).logits, expected)
    regard.hf.use(had_none)
    assert (had_none(tokens()).logits - expected).abs().max() > 0.1


@torch.no_grad()
def test_patterns_of_some_layers() -> None:
    kind, config = DECODERS["softcap"]
    # Layers 0 and 2 of Gemma 2 have a window.
    assert config.layer_types == ["sliding_attention", "full_attention", "sliding_attention"]
    expected = made(kind, config)(tokens()).logits
    without = transformers.Gemma2Config(**GROUPED, layer_types=["full_attention"] * 3)
    near = regard.window(before=8)
    model = regard.hf.use(made(kind, without), pattern={0: near, 2: near})
    same(model(tokens()).logits, expected)


def test_numbers_are_added_behind_a_softcap() -> None:
    model = made(*DECODERS["softcap"])
    chance = torch.Generator().manual_seed(1)
    order = torch.full((40, 40), torch.finfo(torch.float32).min).triu(1)
    added = order + 5 * torch.randn(3, 1, 40, 40, generator=chance).tril()
    before, after = before_and_after(model, input_ids=tokens(), attention_mask=added)
    plain, _ = before_and_after(made(*DECODERS["softcap"]), input_ids=tokens())
    same(after, before)
    assert (plain - before).abs().max() > 0.1 * before.abs().max()


@torch.no_grad()
def test_a_pattern_holds_while_generating() -> None:
    model = regard.hf.use(
        made(*DECODERS["llama"]), pattern=regard.columns(every=3) | regard.window(4)
    )
    written = model.generate(tokens(), max_new_tokens=12, do_sample=False)
    logits = model(written).logits
    assert torch.equal(logits[:, 39:-1].argmax(-1), written[:, 40:])


def test_patterns_leave_cross_attention_alone() -> None:
    model = regard.hf.use(made(*OTHERS["cross"]), pattern=regard.window(before=1, after=1))
    with torch.no_grad():
        moved = tokens(1)
        before = model(moved, decoder_input_ids=tokens(1)[:, :1])[0]
        moved[0, -1] = (moved[0, -1] + 1) % 40 + 3
        after = model(moved, decoder_input_ids=tokens(1)[:, :1])[0]
    assert (after - before).abs().max() > 1e-4


def test_from_pretrained(tmp_path: Any) -> None:
    kind, config = DECODERS["llama"]
    made(kind, config).save_pretrained(tmp_path)
    regard.hf.register()
    model = kind.from_pretrained(tmp_path, attn_implementation="regard")
    assert model.config._attn_implementation == "regard"
    again = kind.from_pretrained(tmp_path, attn_implementation="eager")
    same(model(tokens()).logits, again(tokens()).logits)


MASK_FUNCTIONS: dict[str, tuple[Callable[..., Any], Pattern | None]] = {
    "causal": (masking_utils.causal_mask_function, regard.causal()),
    "everyone": (masking_utils.bidirectional_mask_function, regard.everyone()),
    "window": (
        masking_utils.sliding_window_causal_mask_function(5),
        regard.window(before=4, after=17) & regard.causal(),
    ),
    "window on both sides": (
        masking_utils.sliding_window_bidirectional_mask_function(5),
        regard.window(before=5, after=5) & regard.everyone(),
    ),
    "either": (
        masking_utils.or_masks(
            masking_utils.causal_mask_function,
            masking_utils.sliding_window_bidirectional_overlay(2),
        ),
        regard.causal() | regard.window(before=2, after=2),
    ),
    "chunks": (
        masking_utils.chunked_causal_mask_function(4, torch.zeros(2, dtype=torch.long)),
        None,
    ),
    "own": (lambda batch, head, query, key: (query + key) % 3 > 0, None),
    "own and causal": (
        masking_utils.and_masks(
            masking_utils.causal_mask_function, lambda batch, head, query, key: key != 3
        ),
        None,
    ),
}
PADDINGS = {
    "no": None,
    "left": [[0, 0, 0] + [1] * 14, [1] * 17],
    "right": [[1] * 11 + [0] * 6, [1] * 17],
    "both": [[0] * 2 + [1] * 9 + [0] * 6, [0] * 17],
    "holes": [[1, 0, 1] + [1] * 14, [1] * 17],
    "two holes": [[0, 1, 0, 1] + [1] * 13, [1] * 17],
}


@pytest.mark.pairwise
@pytest.mark.parametrize("padded", PADDINGS)
@pytest.mark.parametrize("name", MASK_FUNCTIONS)
@pytest.mark.parametrize(
    ("offsets", "num_queries", "num_keys"),
    [((0, 0), 17, 17), ((14, 0), 3, 17), ((5, 0), 3, 17), ((12, 6), 3, 11), ((0, 0), 17, 13)],
)
def test_masks_say_what_transformers_say(
    name: str, padded: str, offsets: tuple[int, int], num_queries: int, num_keys: int
) -> None:
    function, pattern = MASK_FUNCTIONS[name]
    kept = PADDINGS[padded]
    arguments = {
        "batch_size": 2,
        "q_length": num_queries,
        "kv_length": num_keys,
        "q_offset": offsets[0],
        "kv_offset": offsets[1],
        "mask_function": function,
        "attention_mask": None if kept is None else torch.tensor(kept).bool(),
    }
    skips = {"allow_is_causal_skip": False, "allow_is_bidirectional_skip": False}
    expected = masking_utils.sdpa_mask(**arguments, **skips)
    found = mask(**arguments)
    known = pattern is not None and padded not in ("holes", "two holes")
    assert not known or isinstance(found, PatternMask)
    assert found.shape == (2, 1, num_queries, num_keys) == expected.shape
    assert torch.equal(found & True, expected)
    if padded == "no" and isinstance(found, PatternMask) and num_keys == 17:
        assert found.pattern == pattern


def test_layers_share_what_they_allow() -> None:
    near, found = regard.window(before=3), mask(batch_size=1, q_length=7, kv_length=7)
    assert isinstance(found, PatternMask)
    assert found.intersect(near) is found.intersect(regard.window(before=3))
    assert torch.equal(
        found.intersect(near).allows(range(7), range(7)),
        (regard.causal() & near).allows(range(7), range(7)),
    )


def test_without_transformers(run_python: Callable[..., str]) -> None:
    program = """
import sys
sys.modules["transformers"] = None
import regard.hf
try:
    regard.hf.register()
except ImportError as error:
    print(error)
"""
    assert run_python("-c", program) == 'regard.hf needs transformers: pip install "regard[hf]"\n'


def test_masks_hold_no_numbers() -> None:
    long = mask(batch_size=1, q_length=10**6, kv_length=10**6)
    assert isinstance(long, PatternMask)
    assert long.shape == (1, 1, 10**6, 10**6)
    assert repr(long) == "PatternMask(causal(), 1 × 1 × 1000000 × 1000000)"


def test_masks_are_booleans_to_whoever_computes_with_them() -> None:
    made_of = mask(batch_size=1, q_length=5, kv_length=5)
    allowed = torch.ones(1, 1, 5, 5, dtype=torch.bool).tril()
    scores = torch.randn(1, 2, 5, 5, generator=torch.Generator().manual_seed(0))
    hidden = scores.masked_fill(~allowed, -torch.inf)
    assert torch.equal(made_of[..., 1:4], allowed[..., 1:4])
    assert torch.equal(made_of & allowed.mT, allowed & allowed.mT)
    assert torch.equal(torch.where(made_of, scores, -torch.inf), hidden)
    assert torch.equal(scores.masked_fill(~made_of, -torch.inf), hidden)
    assert torch.equal(scores.masked_fill(made_of.logical_not(), -torch.inf), hidden)
    zeros = torch.zeros_like(made_of, dtype=torch.float32)
    assert torch.equal(scores + zeros.masked_fill(~made_of, -torch.inf), hidden)
    copied = made_of.clone()
    copied[..., 0, 1] = True
    assert bool(copied[0, 0, 0, 1])
    assert not bool(made_of[0, 0, 0, 1])
    attention = torch.nn.functional.scaled_dot_product_attention
    assert torch.equal(
        attention(scores, scores, scores, attn_mask=made_of),
        attention(scores, scores, scores, attn_mask=allowed),
    )


@pytest.mark.parametrize(
    "compute",
    [
        lambda scores, mask: scores + mask,
        lambda scores, mask: scores * mask,
        lambda scores, mask: scores.add_(mask),
        lambda scores, mask: scores + mask.to(scores.dtype),
        lambda scores, mask: scores + mask.float()[..., :5],
        lambda scores, mask: torch.baddbmm(mask[0].float(), scores[0], scores[0]),
        lambda scores, mask: scores + mask[..., :5, :5],
        lambda scores, mask: scores + (mask & mask.mT).clone(),
        lambda scores, mask: torch.empty(1, 1, 5, 5).copy_(mask),
        lambda scores, mask: (1.0 - mask.float()) * -1e9 + scores,
    ],
)
def test_no_numbers_are_computed_from_masks(compute: Callable[[Tensor, Tensor], Tensor]) -> None:
    rule = (
        r"^the model computes numbers from its mask \(.*load it with attn_implementation=\"eager\"$"
    )
    with pytest.raises(ValueError, match=rule):
        compute(torch.zeros(1, 2, 5, 5), mask(batch_size=1, q_length=5, kv_length=5))


@pytest.mark.parametrize(
    "lengthen",
    [
        # What allows three more keys in numbers hides them in booleans, and the other way round.
        lambda mask: torch.cat([mask, torch.zeros(1, 1, 5, 3).to(mask.dtype)], dim=-1),
        lambda mask: torch.cat([mask, torch.full((1, 1, 5, 3), -torch.inf).bool()], dim=-1),
        lambda mask: torch.cat([mask, mask.new_zeros(1, 1, 5, 3)], dim=-1),
        lambda mask: torch.nn.functional.pad(mask, (0, 3), value=0.0),
        lambda mask: torch.nn.functional.pad(mask, (0, 3)),
        lambda mask: torch.nn.functional.pad(mask[..., :4], (0, 3), value=-1e9),
    ],
)
def test_no_numbers_are_put_beside_masks(lengthen: Callable[[Tensor], Tensor]) -> None:
    rule = r"^the model extends its mask \(.*attn_implementation=\"eager\"$"
    with pytest.raises(ValueError, match=rule):
        lengthen(mask(batch_size=1, q_length=5, kv_length=5))


def test_masks_are_put_beside_masks() -> None:
    made_of = mask(batch_size=1, q_length=5, kv_length=5)
    dense = made_of.dense()  # pyright: ignore[reportAttributeAccessIssue]
    longer = torch.cat([made_of.new_ones(1, 1, 5, 3), made_of], dim=-1)
    assert torch.equal(torch.cat([torch.ones(1, 1, 5, 3).bool(), dense], dim=-1), longer)
    assert torch.equal(
        torch.nn.functional.pad(dense, (0, 3), value=True),
        torch.nn.functional.pad(made_of, (0, 3), value=True),
    )


@pytest.mark.parametrize("name", ["indices", "block_indices"])
def test_keys_that_the_model_chooses_are_refused(name: str) -> None:
    query = torch.randn(1, 2, 5, 4)
    rule = rf"^Linear selects keys for each query \({name}\), which"
    with pytest.raises(ValueError, match=rule):
        attention(nn.Linear(1, 1), query, query, query, None, **{name: torch.zeros(1, 5, 2)})


def test_numbers_of_another_kernel_are_refused() -> None:
    """Such as the sinks of each query that Inkling 2 passes."""
    query = torch.randn(1, 2, 5, 4)
    rule = r"^Linear passes sinks to its attention, which attn_implementation=\"regard\" does not"
    with pytest.raises(ValueError, match=rule):
        attention(nn.Linear(1, 1), query, query, query, None, sinks=torch.zeros(1, 2, 5, 1))


@pytest.mark.parametrize(
    "write",
    [
        lambda mask: mask.fill_(True),
        lambda mask: mask.logical_not_(),
        lambda mask: mask[..., 0].fill_(True),
        lambda mask: mask.__setitem__((..., 0), True),
    ],
)
def test_what_is_written_to_masks_is_not_lost(write: Callable[[Tensor], object]) -> None:
    rule = r"^the model writes to its mask \(.*load it with attn_implementation=\"sdpa\"$"
    with pytest.raises(ValueError, match=rule):
        write(mask(batch_size=1, q_length=5, kv_length=5))


@pytest.mark.usefixtures("unchecked")
class TestRefusals:
    def test_models_of_others(self) -> None:
        with pytest.raises(ValueError, match=r"^model must be a transformers model, got Linear$"):
            regard.hf.use(nn.Linear(2, 3))

    def test_models_that_compute_attention_by_themselves(self) -> None:
        model = made(transformers.MPNetModel, transformers.MPNetConfig(**SIZES))
        rule = r"^MPNetModel has its own attention code, which can't be replaced$"
        with pytest.raises(ValueError, match=rule):
            regard.hf.use(model)

    def test_models_with_one_inside_that_does(self) -> None:
        sizes = {"is_decoder": True, "add_cross_attention": True}
        both = transformers.EncoderDecoderModel(
            encoder=transformers.MPNetModel(transformers.MPNetConfig(**SIZES)),
            decoder=transformers.BertLMHeadModel(transformers.BertConfig(**SIZES | sizes)),
        )
        before = both.decoder.config._attn_implementation
        with pytest.raises(ValueError, match=r"^MPNetModel has its own attention code"):
            regard.hf.use(both, pattern=regard.window(before=3))
        assert both.decoder.config._attn_implementation == before

    def test_models_of_timm(self) -> None:
        """They need timm to be made, but not to be asked."""
        regard.hf.register()
        kind = modeling_timm_wrapper.TimmWrapperModel
        with pytest.raises(ValueError, match=r"^TimmWrapperModel has its own attention code"):
            kind.get_correct_attn_implementation(kind.__new__(kind), "regard")

    @pytest.mark.parametrize("name", BY_THEMSELVES)
    def test_they_refuse_when_they_are_loaded(self, name: str) -> None:
        regard.hf.register()
        regard.hf.register()
        kind, sizes = BY_THEMSELVES[name]
        needs_config(kind.config_class)
        rule = rf"^{kind.__name__} has its own attention code, which can't be replaced$"
        with pytest.raises(ValueError, match=rule):
            kind._from_config(kind.config_class(**sizes), attn_implementation="regard")

    def test_layers_that_are_not_there(self) -> None:
        rule = r"^pattern names layers \[3, 7\], but those of LlamaForCausalLM are 0 to 2$"
        with pytest.raises(ValueError, match=rule):
            regard.hf.use(
                made(*DECODERS["llama"]), pattern={7: regard.causal(), 3: regard.causal()}
            )

    def test_weights(self) -> None:
        model = regard.hf.use(made(*DECODERS["llama"]))
        with pytest.raises(ValueError, match=r"returns no weights: leave output_attentions out$"):
            model(tokens(), output_attentions=True)

    def test_dropped_keys(self) -> None:
        model = regard.hf.use(made(*DECODERS["window"]), pattern=regard.columns(every=3))
        rule = (
            r"^the cache has dropped the first \d+ keys, and columns\(every=3\) depends on absolute"
        )
        with pytest.raises(ValueError, match=rule):
            model.generate(tokens(), max_new_tokens=12, do_sample=False)

    def test_tensors_that_dont_say_where_queries_stand(self) -> None:
        model = regard.hf.use(made(*DECODERS["llama"]), pattern=regard.window(before=3))
        past = model(tokens()[:, :30], use_cache=True).past_key_values
        allowed = torch.ones(3, 1, 10, 40, dtype=torch.bool)
        rule = r"needs the positions of its 10 queries among 40 keys"
        with pytest.raises(ValueError, match=rule):
            model(tokens()[:, 30:], attention_mask=allowed, past_key_values=past)


def test_learned_queries_have_no_positions() -> None:
    """Those of a resampler look at all keys, whatever their module is called."""
    module = nn.Module()
    module.is_causal = False
    setattr(module, LAYER_PATTERN, regard.window(before=3))
    query, key = torch.randn(1, 2, 4, 8), torch.randn(1, 2, 9, 8)
    with pytest.raises(ValueError, match=r"the positions of its 4 queries among 9 keys, which are"):
        attention(module, query, key, key, None)
    attention(module, key, key, key, None)
    attention(module, query[:, :, :1], key, key, None)


@pytest.mark.slow
def test_a_compiled_model_is_told_nothing_of_graph_breaks() -> None:
    """Masks and patterns are kept out of the graph, instead of failing to be traced."""
    made, config = DECODERS["window"]
    torch.manual_seed(0)
    model = made(config).eval()
    regard.hf.use(model, pattern=regard.window(before=5))
    tokens = torch.arange(20)[None] % config.vocab_size
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error")
        found = torch.compile(model, backend="eager")(tokens).logits
        torch.testing.assert_close(found, model(tokens).logits)
