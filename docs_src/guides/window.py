"""A window on a model of transformers."""

# --8<-- [start:model]
import os

import torch
from matplotlib import pyplot
from transformers import AutoModel, AutoTokenizer, LlamaConfig, LlamaForCausalLM, logging

import regard
import regard.hf

logging.set_verbosity_error()
logging.disable_progress_bar()

name = os.environ.get("MODEL", "sentence-transformers/all-MiniLM-L6-v2")
tokenizer = AutoTokenizer.from_pretrained(name)
model = AutoModel.from_pretrained(name).eval()

text = """The ship left the harbour at dawn, and nobody on the quay knew where she was bound. Her
captain had told the crew to wait for the tide. Two days later a letter came to the owner of the
ship: the cargo was lost, but the men were safe on an island in the north. He read it twice, put
it away, and went to tell their families. In spring a fisherman brought them home."""
inputs = tokenizer(text, return_tensors="pt")


@torch.no_grad()
def vector():
    """Return what this model is for: one vector for the text, the mean over its tokens."""
    return model(**inputs).last_hidden_state[0].mean(dim=0)


def similar(first, second):
    return torch.cosine_similarity(first, second, dim=0).item()


before = vector()
print(inputs["input_ids"].shape[1], "tokens,", model.config._attn_implementation)
# --8<-- [end:model]

# --8<-- [start:use]
regard.hf.use(model)
print("on attend, no pattern:", torch.allclose(vector(), before, atol=1e-5))

for reach in (32, 16, 8, 4):
    near = regard.window(before=reach, after=reach)
    regard.hf.use(model, pattern=near)
    windowed = vector()
    regard.hf.use(model, pattern=near | regard.global_at([0]))
    print(f"{reach:2} on either side: {similar(windowed, before):.2f},", end=" ")
    print(f"and [CLS] for all: {similar(vector(), before):.2f}")
# --8<-- [end:use]

# --8<-- [start:layers]
near = regard.window(before=8, after=8)
layers = range(model.config.num_hidden_layers)
alone = []
for layer in layers:
    regard.hf.use(model, pattern={layer: near})  # the others have none
    alone.append(similar(vector(), before))
    print(f"layer {layer} alone: {alone[-1]:.3f}")

regard.hf.use(model, pattern={0: near, 1: near, 2: near})
print(f"the first three: {similar(vector(), before):.3f}")
regard.hf.use(model, pattern={3: near, 4: near, 5: near})
print(f"the last three:  {similar(vector(), before):.3f}")
# --8<-- [end:layers]

# --8<-- [start:picture]
figure, axes = pyplot.subplots(figsize=(4.6, 2.4), layout="constrained")
axes.bar(layers, [1 - value for value in alone], color="#3b6ea5")
axes.set(xlabel="layer with a window of 8 on either side", ylabel="1 − similarity")
figure.savefig("window-layers.svg")
# --8<-- [end:picture]

# --8<-- [start:seen]
with regard.watch(model) as seen:
    vector()
for call in seen:
    print(call.module, call.kernel, call.pattern)
# --8<-- [end:seen]

# --8<-- [start:undo]
regard.hf.use(model)  # no patterns any more, still on attend
print("no patterns:", torch.allclose(vector(), before, atol=1e-5))
model.set_attn_implementation("sdpa")  # back on transformers' own attention
print("as it was:", torch.equal(vector(), before))
# --8<-- [end:undo]

# --8<-- [start:generate]
torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=100,
    hidden_size=32,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
)
decoder = LlamaForCausalLM(config).eval()  # random weights
prompt = torch.randint(3, 100, (1, 40))
settings = {"max_new_tokens": 60, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}

free = decoder.generate(prompt, **settings)
regard.hf.use(decoder, pattern=regard.window(before=15))
cached = decoder.generate(prompt, use_cache=True, **settings)
uncached = decoder.generate(prompt, use_cache=False, **settings)
print("the same text with and without a cache:", torch.equal(cached, uncached))
print("the same as without a window:", torch.equal(cached, free))
# --8<-- [end:generate]
