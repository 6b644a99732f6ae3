"""A small decoder and a tokenizer of whole words."""

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from tests.small import GROUPED

_TEXT = "[UNK] Harriet bought a violin . Oliver kite The sea was calm what did buy ? user bot :"
WORDS = {word: number for number, word in enumerate(_TEXT.split())}


def tokenizer() -> PreTrainedTokenizerFast:
    words = Tokenizer(WordLevel(WORDS, "[UNK]"))
    words.pre_tokenizer = WhitespaceSplit()
    found = PreTrainedTokenizerFast(tokenizer_object=words, unk_token="[UNK]")
    found.chat_template = (
        "{% for one in messages %}{{ one.role }} : {{ one.content.strip() }}\n{% endfor %}"
        "{% if add_generation_prompt %}bot :{% endif %}"
    )
    return found


def decoder(attention: str = "sdpa") -> LlamaForCausalLM:
    torch.manual_seed(0)
    sizes = GROUPED | {"vocab_size": len(WORDS), "num_hidden_layers": 3}
    model = LlamaForCausalLM(LlamaConfig(**sizes)).double().eval()
    model.set_attn_implementation(attention)
    return model
