"""What holds for every kind of model that weights are read from."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from transformers import T5Config, T5EncoderModel

from regard.models import ImageEncoder, TextDecoder, TextEncoder
from regard.models.compared import check_same_outputs
from tests.models.cases import lively
from tests.models.weights.test_bert import bert_model
from tests.models.weights.test_gpt2 import gpt2_model
from tests.models.weights.test_llama import llama_model
from tests.models.weights.test_vit import vit_model

KINDS: dict[str, tuple[type[nn.Module], Callable[..., nn.Module]]] = {
    "bert": (TextEncoder, bert_model),
    "gpt2": (TextDecoder, gpt2_model),
    "gpt2 untied": (TextDecoder, lambda: gpt2_model(tie_word_embeddings=False)),
    "llama": (TextDecoder, llama_model),
    "llama tied": (TextDecoder, lambda: llama_model(tie_word_embeddings=True)),
    "vit": (ImageEncoder, vit_model),
}


def copies(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in tensors.items()}


@pytest.mark.parametrize("name", KINDS)
def test_weights_are_copied(name: str) -> None:
    kind, make = KINDS[name]
    theirs = make()
    ours = kind.from_transformers(theirs)
    before, ours_before = copies(theirs.state_dict()), copies(ours.state_dict())
    with torch.no_grad():
        for weight in ours.parameters():
            weight.fill_(7.0)
    for key, weight in theirs.state_dict().items():
        assert torch.equal(weight, before[key]), key
    ours.load_state_dict(ours_before)
    with torch.no_grad():
        for weight in theirs.parameters():
            weight.fill_(5.0)
    for key, weight in ours.state_dict().items():
        assert torch.equal(weight, ours_before[key]), key


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_the_dtype_is_kept(name: str, dtype: torch.dtype) -> None:
    kind, make = KINDS[name]
    ours = kind.from_transformers(make().to(dtype))
    assert {weight.dtype for weight in ours.parameters()} == {dtype}


@pytest.mark.parametrize("name", ["bert", "gpt2", "vit"])
def test_the_device_is_kept(name: str) -> None:
    kind, make = KINDS[name]
    ours = kind.from_transformers(make().to("meta"))
    assert {weight.device.type for weight in ours.parameters()} == {"meta"}


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("training", [True, False])
def test_it_trains_if_theirs_does(name: str, training: bool) -> None:
    kind, make = KINDS[name]
    ours = kind.from_transformers(make().train(training))
    assert {module.training for module in ours.modules()} == {training}


@pytest.mark.parametrize("name", KINDS)
def test_theirs_is_only_read(name: str) -> None:
    kind, make = KINDS[name]
    theirs = make().train()
    next(iter(theirs.children())).eval()
    modes = [module.training for module in theirs.modules()]
    before, config = copies(theirs.state_dict()), theirs.config.to_dict()
    kind.from_transformers(theirs)
    assert [module.training for module in theirs.modules()] == modes
    assert theirs.config.to_dict() == config
    for key, weight in theirs.state_dict().items():
        assert torch.equal(weight, before[key]), key


@pytest.mark.parametrize(
    ("kind", "make", "message"),
    [
        (TextEncoder, gpt2_model, 'of type "bert", got "gpt2"'),
        (TextEncoder, vit_model, 'of type "bert", got "vit"'),
        (TextDecoder, bert_model, 'of type "gpt2" or "llama", got "bert"'),
        (ImageEncoder, llama_model, 'of type "vit", got "llama"'),
        (
            TextEncoder,
            lambda: T5EncoderModel(T5Config(vocab_size=17, d_model=8, d_ff=5, num_layers=1)),
            'of type "bert", got "t5"',
        ),
        (TextDecoder, lambda: nn.Linear(2, 3), 'of type "gpt2" or "llama", got Linear'),
    ],
)
def test_other_models_are_refused(
    kind: type[nn.Module], make: Callable[[], nn.Module], message: str
) -> None:
    with pytest.raises(ValueError, match=f"^model must be a transformers model {message}$"):
        kind.from_transformers(make())


@pytest.mark.parametrize("name", ["gpt2", "llama tied"])
def test_tied_in_the_config_and_not_in_the_weights(name: str) -> None:
    """As after a head was trained apart: what the weights say counts."""
    kind, make = KINDS[name]
    theirs = make().eval()
    head = theirs.get_output_embeddings()
    head.weight = nn.Parameter(
        torch.randn(head.weight.shape, generator=torch.Generator().manual_seed(0))
    )
    tokens = torch.arange(6)[None]
    with torch.no_grad():
        torch.testing.assert_close(
            kind.from_transformers(theirs)(tokens), theirs(tokens).logits, rtol=1e-4, atol=1e-4
        )


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("llama", "model.layers.1.self_attn.q_proj"),
        ("llama", "model.layers.0.mlp.down_proj"),
        ("llama", "lm_head"),
        ("gpt2", "lm_head"),
    ],
)
def test_a_tensor_that_ours_has_not(name: str, path: str) -> None:
    kind, make = KINDS[name]
    theirs = make()
    linear = theirs.get_submodule(path)
    linear.bias = nn.Parameter(torch.ones(linear.weight.shape[0]))
    rule = rf'^the model has a tensor "{path}.bias", which is not supported$'
    with pytest.raises(ValueError, match=rule):
        kind.from_transformers(theirs)


def test_a_comparison_draws_no_numbers() -> None:
    theirs = gpt2_model(resid_pdrop=0.5, embd_pdrop=0.5, attn_pdrop=0.5).train()
    ours = TextDecoder.from_transformers(theirs).eval()
    state = torch.get_rng_state()
    check_same_outputs(ours, theirs, torch.arange(5)[None])
    assert torch.equal(torch.get_rng_state(), state)


def changed(model: nn.Module, path: str, **settings: object) -> nn.Module:
    """Return a model with other settings of one of its modules."""
    for name, value in settings.items():
        setattr(model.get_submodule(path), name, value)
    return model


def with_a_hook(model: nn.Module, path: str) -> nn.Module:
    model.get_submodule(path).register_forward_hook(lambda _module, _inputs, output: 1.1 * output)
    return model


LLAMA_LAYER, BERT_LAYER = "model.layers.1", "encoder.layer.1"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize(
    ("kind", "make", "place"),
    [
        (
            TextDecoder,
            lambda: changed(llama_model(), f"{LLAMA_LAYER}.self_attn", scaling=0.1),
            "block 1",
        ),
        (
            TextDecoder,
            lambda: changed(
                llama_model(attn_implementation="sdpa"), f"{LLAMA_LAYER}.self_attn", is_causal=False
            ),
            "block 1",
        ),
        (
            TextDecoder,
            lambda: changed(llama_model(), f"{LLAMA_LAYER}.mlp", act_fn=nn.GELU()),
            "block 1",
        ),
        (
            TextDecoder,
            lambda: changed(llama_model(), "model.layers.0.input_layernorm", variance_epsilon=0.5),
            "block 0",
        ),
        (
            TextDecoder,
            lambda: changed(llama_model(), "model.norm", variance_epsilon=50.0),
            "the output",
        ),
        (
            TextDecoder,
            lambda: changed(gpt2_model(), "transformer.h.0.mlp", act=nn.Tanh()),
            "block 0",
        ),
        (TextDecoder, lambda: with_a_hook(gpt2_model(), "transformer.wte"), "the embedding"),
        (TextDecoder, lambda: with_a_hook(gpt2_model(), "lm_head"), "the output"),
        (
            TextEncoder,
            lambda: changed(bert_model(), f"{BERT_LAYER}.attention.self", scaling=9.0),
            "block 1",
        ),
        (TextEncoder, lambda: with_a_hook(bert_model(), "embeddings"), "the embedding"),
        (ImageEncoder, lambda: changed(vit_model(), "layernorm", eps=50.0), "the output"),
    ],
)
def test_edited_modules_are_refused(
    kind: type[nn.Module], make: Callable[[], nn.Module], place: str, dtype: torch.dtype
) -> None:
    rule = f"^the model must compute what its config and weights say: {place}.* is off by"
    with pytest.raises(ValueError, match=rule):
        kind.from_transformers(make().to(dtype))


@pytest.mark.pairwise
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_rounding_is_not_refused(name: str, dtype: torch.dtype, attention: str) -> None:
    kind, make = KINDS[name]
    theirs = make().to(dtype)
    theirs.set_attn_implementation(attention)
    for seed in range(3):
        kind.from_transformers(lively(theirs, seed))
