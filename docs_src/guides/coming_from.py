"""What stands for what, for those who know other tools."""

# --8<-- [start:model]
import os

import torch
from torch import nn
from transformers import AutoModel, AutoTokenizer, logging

import regard
from regard.layers import MultiHeadAttention

logging.set_verbosity_error()
logging.disable_progress_bar()

name = os.environ.get("MODEL", "sentence-transformers/all-MiniLM-L6-v2")
tokenizer = AutoTokenizer.from_pretrained(name)
model = AutoModel.from_pretrained(name).eval()
inputs = tokenizer("The animal was too tired to cross the street.", return_tensors="pt")
tokens = tokenizer.convert_ids_to_tokens(inputs["input_ids"][0])
# --8<-- [end:model]

# --8<-- [start:page]
with torch.no_grad(), regard.watch(model) as seen:
    model(**inputs)
page = regard.page(seen, tokens)  # the last line of a cell in a notebook
page.save("attention.html")
# --8<-- [end:page]

# --8<-- [start:neuron]
regard.page(seen, tokens, dimensions=True).save("neurons.html")
# --8<-- [end:neuron]

# --8<-- [start:pair]
two = tokenizer("The rabbit hopped.", "The turtle was slow.", return_tensors="pt")
with torch.no_grad(), regard.watch(model) as seen_pair:
    model(**two)
pair = tokenizer.convert_ids_to_tokens(two["input_ids"][0])
regard.page(seen_pair, pair, sentence_b_start=pair.index("[SEP]") + 1).save("pair.html")
# --8<-- [end:pair]

# --8<-- [start:weights]
with torch.no_grad():
    outputs = model(**inputs, output_attentions=True)
print("sdpa returns", outputs.attentions)
# --8<-- [end:weights]

# --8<-- [start:eager]
eager = AutoModel.from_pretrained(name, attn_implementation="eager").eval()
with torch.no_grad():
    attentions = eager(**inputs, output_attentions=True).attentions
print("eager returns", len(attentions), "tensors", list(attentions[0].shape))
# --8<-- [end:eager]

# --8<-- [start:equal]
for layer, call in enumerate(seen):
    same = torch.allclose(attentions[layer], call.matrix.dense(), atol=1e-5)
    print(f"layer {layer}: {call.kernel}, the same weights: {same}")

weights = attentions[5][0, 3]
by_hand = -(weights * weights.log()).sum(dim=-1)
print("entropy:", torch.allclose(by_hand, seen[5].matrix[0, 3].entropy().nats, atol=1e-4))
# --8<-- [end:equal]

# --8<-- [start:before]
torch.manual_seed(0)
x = torch.randn(2, 7, 32)
theirs = nn.MultiheadAttention(32, num_heads=4, batch_first=True).eval()

ahead = torch.ones(7, 7, dtype=torch.bool).triu(1)  # True: may NOT look
filled = torch.arange(7) >= torch.tensor([[7], [5]])  # True: is padding
masks = {"attn_mask": ahead, "key_padding_mask": filled}
output, weights = theirs(x, x, x, need_weights=True, average_attn_weights=False, **masks)
print("output", list(output.shape), "weights", list(weights.shape))
# --8<-- [end:before]

# --8<-- [start:after]
ours = MultiHeadAttention(32, num_heads=4, pattern=regard.causal()).eval()
print(ours.load_state_dict(theirs.state_dict()))

padded = regard.padding([7, 5])  # lengths: what may be looked at
print("output:", torch.allclose(ours(x, pattern=padded), output, atol=1e-5))
matrix = ours.matrix(x, pattern=padded)
print("weights:", torch.allclose(matrix.dense(), weights, atol=1e-5))
mean = theirs(x, x, x, **masks)[1]
print("average_attn_weights:", torch.allclose(matrix.dense().mean(dim=1), mean, atol=1e-5))
# --8<-- [end:after]

# --8<-- [start:masks]
mask = torch.rand(7, 7) < 0.5  # in the sense of nn.MultiheadAttention: True may not look
mask.fill_diagonal_(False)
pattern = regard.patterns.from_mask(~mask)  # in ours: True may look

free = MultiHeadAttention(32, num_heads=4).eval()
free.load_state_dict(theirs.state_dict())
same = torch.allclose(free(x, pattern=pattern), theirs(x, x, x, attn_mask=mask)[0], atol=1e-5)
print("turned round:", same)
# --8<-- [end:masks]
