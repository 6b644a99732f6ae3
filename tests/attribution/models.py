"""A small decoder and a tokenizer of whole words."""

import torch
from tokenizers import Tokenizer, decoders, normalizers
from tokenizers.models import BPE, WordLevel
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


def tokenizer_that_begins_with_a_space() -> PreTrainedTokenizerFast:
    """As that of Llama 2: each text gets a space at its beginning."""
    letters = ["[UNK]", "▁", "a", "b", "c", "\n", "▁a", "▁b", "▁c"]
    merges = [("▁", letter) for letter in "abc"]
    found = Tokenizer(BPE({one: number for number, one in enumerate(letters)}, merges))
    space, spaces = normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")
    found.normalizer = normalizers.Sequence([space, spaces])
    found.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=found)


def decoder(attention: str = "sdpa") -> LlamaForCausalLM:
    torch.manual_seed(0)
    sizes = GROUPED | {"vocab_size": len(WORDS), "num_hidden_layers": 3}
    model = LlamaForCausalLM(LlamaConfig(**sizes)).double().eval()
    model.set_attn_implementation(attention)
    return model
