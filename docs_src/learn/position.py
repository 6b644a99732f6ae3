"""What order does to attention."""

# --8<-- [start:permute]
import textwrap

import torch
from matplotlib import pyplot

import regard
from regard.layers import MultiHeadAttention
from regard.positions import Learned, Relative, Rotary, alibi, sinusoidal

torch.manual_seed(0)
layer = MultiHeadAttention(model_dim=16, num_heads=2)
words = dict(zip(["dog", "bites", "man"], torch.randn(3, 16), strict=True))


def read(sentence, encoding=0.0):
    x = torch.stack([words[word] for word in sentence.split()])
    return layer((x + encoding)[None])[0]


one, other = read("dog bites man"), read("man bites dog")
same = torch.allclose(one[[2, 1, 0]], other, atol=1e-6)
print("the same vectors, in another order:", same)
# --8<-- [end:permute]

# --8<-- [start:added]
waves = sinusoidal(3, 16)
one, other = read("dog bites man", waves), read("man bites dog", waves)
same = torch.allclose(one[0], other[2], atol=1e-6)
print("with waves, dog is the same in both:", same)

table = Learned(num_positions=512, dim=16)
print("a learned table has", len(table.table), "vectors")
try:
    table(torch.tensor([511, 512]))
except IndexError as error:
    print(textwrap.fill(str(error), 80))
# --8<-- [end:added]

# --8<-- [start:rotary]
rotary = Rotary(dim=16)
query, key = torch.randn(1, 1, 1, 16), torch.randn(1, 1, 1, 16)

for here, there in ((5, 2), (105, 102), (5, 4)):
    turned_query = rotary(query, torch.tensor([here]))
    turned_key = rotary(key, torch.tensor([there]))
    score = (turned_query * turned_key).sum()
    print(f"query at {here:3}, key at {there:3}: score {score:.3f}")
# --8<-- [end:rotary]

# --8<-- [start:biases]
x = torch.zeros(1, 4, 64, 16)  # all scores are 0: only order makes a difference
slopes = alibi(num_heads=4)
learned = Relative(4, num_buckets=8, max_distance=32, bidirectional=False)


def last_rows(bias):
    return regard.AttentionMatrix(x, x, pattern=regard.causal(), bias=bias)[0, :, -1]


print("slopes of alibi", slopes.slopes.tolist())
print("weight of the last token on itself, by head")
for name, bias in {"none": None, "alibi": slopes, "new Relative": learned}.items():
    print(f"    {name:12}", *(f"{weight:.3f}" for weight in last_rows(bias)[:, -1]))
# --8<-- [end:biases]

# --8<-- [start:picture]
# As if it were trained: one head looks at the token before, one at what is near.
with torch.no_grad():
    learned.table[:, 0] = torch.tensor([-2.0, 3.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0])
    learned.table[:, 1] = -0.5 * torch.arange(8)

figure, (left, middle, right) = pyplot.subplots(1, 3, figsize=(9, 3.2), layout="constrained")
distances = torch.arange(64)
encodings = sinusoidal(64, 64)
left.plot(distances, encodings @ encodings[0] / 32, label="sinusoidal")
turned = Rotary(64)(torch.ones(1, 1, 64, 64))[0, 0]
left.plot(distances, turned @ turned[0] / 64, "--", label="rotary")
left.set(title="product of two like tokens", xlabel="distance", ylabel="of that at 0")
for head, slope in enumerate(slopes.slopes.tolist()):
    middle.plot(distances, last_rows(slopes)[head].flip(0), label=f"slope {slope:.3f}")
middle.set(title="alibi, if all scores are 0", xlabel="steps back", ylabel="weight")
for head, name in enumerate(("looks at the token before", "looks at what is near")):
    right.step(distances, last_rows(learned)[head].flip(0), where="mid", label=name)
right.set(title="Relative, if all scores are 0", xlabel="steps back", ylabel="weight")
right.set(xlim=(-1, 40), ylim=(0, 0.36))
for panel in (left, middle, right):
    panel.legend(frameon=False)
figure.savefig("position-distance.svg")
# --8<-- [end:picture]
