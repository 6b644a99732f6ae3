"""Figures that introductions print, and what follows from their own vectors."""

# --8<-- [start:weights]
import torch
from matplotlib import pyplot
from torch import nn

import regard
from regard.layers import RecurrentSelfAttention, SelfAttention
from regard.models import TextEncoder
from regard.positions import Learned, sinusoidal
from regard.views import worked_example
from regard.views.explain.worked_example import KEYS, VALUES

in_table = [0.05, 0.60, 0.02, 0.03, 0.20, 0.00, 0.02, 0.08]
in_text = [0.05, 0.70, 0.02, 0.01, 0.01, 0.20, 0.01, 0.00, 0.01, 0.00, 0.00]
printed_table = dict(zip(KEYS, in_table, strict=True))
printed_text = dict(zip(VALUES, in_text, strict=True))
printed_sum = [0.598, 0.518, 0.432]

plain, scaled = worked_example(scaled=False), worked_example()

print("        score  softmax  with 1/√3   printed: in a table  in the text")
for place, word in enumerate(plain.tokens):
    print(f"{word:7} {plain.scores[place]:5.2f}", end="")
    print(f"  {plain.weights[place]:7.3f}  {scaled.weights[place]:9.3f}", end="")
    print(f"  {printed_table[word]:20.2f}  {printed_text[word]:11.2f}")
print("words with a key:", len(KEYS), " words with a value:", len(VALUES))

total = sum(printed_text.values())
values = torch.tensor([VALUES[word] for word in printed_text])
right = torch.tensor(list(printed_text.values())) @ values
print(f"the weights of the text add up to {total:.2f}")
print("their weighted sum is  ", *(f"{number:.3f}" for number in right))
print("the sum that is printed", *(f"{number:.3f}" for number in printed_sum))
# --8<-- [end:weights]

# --8<-- [start:picture]
figure, panel = pyplot.subplots(figsize=(8, 3.2), layout="constrained")
bars = {
    "printed in a table": [printed_table[word] for word in plain.tokens],
    "printed in the text": [printed_text[word] for word in plain.tokens],
    "what follows from the vectors": plain.weights.tolist(),
    "the same with 1/√3": scaled.weights.tolist(),
}
colours = ("#d55e00", "#e69f00", "#0072b2", "#56b4e9")
for number, (name, heights) in enumerate(bars.items()):
    places = [place + 0.2 * (number - 1.5) for place in range(len(plain.tokens))]
    panel.bar(places, heights, 0.2, label=name, color=colours[number])
panel.set_xticks(range(len(plain.tokens)), plain.tokens)
panel.set(ylabel="weight", title="Where “it” looks")
panel.legend(frameon=False)
figure.savefig("where-introductions-go-wrong-weights.svg")
# --8<-- [end:picture]

# --8<-- [start:projection]
torch.manual_seed(0)
model_dim, key_dim = 6, 3
x = torch.randn(1, 10, model_dim)

try:
    nn.Linear(key_dim, key_dim)(x)  # a value projection that takes key_dim numbers
except RuntimeError as error:
    print(error)

head = SelfAttention(model_dim, key_dim=key_dim, value_dim=4)
print(list(x.shape), "becomes", list(head(x).shape))
# --8<-- [end:projection]

# --8<-- [start:masks]
encoder = TextEncoder(vocabulary_size=20, model_dim=16, num_layers=1, num_heads=1)
words = encoder.matrices(torch.arange(8)[None])[0][0, 0].dense()
ahead = words.triu(1).sum() / words.sum()
print(f"an encoder of BERT's shape: {ahead:.2f} of the weight is ahead")

recurrent = RecurrentSelfAttention(input_dim=6, state_dim=6, align="dot")
found = recurrent(x)
ahead = found.weights.triu(1).sum() / found.weights.sum()
print(f"self-attention in an RNN:   {ahead:.2f} of the weight is ahead")

raw = found.states[0] @ found.states[0, -1]
print(f"the last row sums to {raw.sum():.2f} as dot products, to", end=" ")
print(f"{found.weights[0, -1].sum():.2f} after softmax over all i ≤ t")
# --8<-- [end:masks]

# --8<-- [start:itself]
tokens = torch.randn(1, 200, 64)
alike = nn.functional.normalize(tokens, dim=-1)  # all of length 1
unlike = tokens * torch.linspace(0.2, 5, 200)[:, None]  # some short, some long
learned = SelfAttention(64)


def on_itself(scores):
    return int((scores.argmax(dim=-1) == torch.arange(200)).sum())


print("tokens of 200 whose highest score is their own")
print("    vectors of one length:  ", on_itself(alike[0] @ alike[0].T))
print("    vectors of many lengths:", on_itself(unlike[0] @ unlike[0].T))
print("    with W_Q and W_K, new:  ", on_itself(learned.matrix(tokens)[0, 0].dense()))
# --8<-- [end:itself]

# --8<-- [start:length]
table = Learned(num_positions=512, dim=64)
print("a learned table ends:", len(table.table), "positions")
far = sinusoidal(torch.tensor(1_000_000), 4)
print("waves do not: position 1,000,000 is", *(f"{number:.2f}" for number in far))

query = torch.randn(1, 1, 100_000, 8)
near = regard.causal() & regard.window(before=63)
output = regard.attend(query, query, query, pattern=near)
print("attention over 100,000 tokens:", output.shape)
# --8<-- [end:length]
