"""Who may look at whom."""

# --8<-- [start:masked]
import torch
from matplotlib import pyplot

import regard
from regard.models import TextDecoder, TextEncoder

torch.manual_seed(0)
query, key = torch.randn(1, 1, 4, 8), torch.randn(1, 1, 4, 8)

for pattern in (regard.everyone(), regard.causal()):
    weights = regard.AttentionMatrix(query, key, pattern=pattern)[0, 0].dense()
    print(pattern)
    for row in weights:
        print("   ", *(f"{weight:.2f}" for weight in row), f"  sum {row.sum():.2f}")
# --8<-- [end:masked]

# --8<-- [start:draw]
near = regard.window(before=2)  # oneself and two before
marks = regard.columns(every=4)  # positions 0, 4, 8, …
sparse = regard.causal() & (near | marks)

print(sparse)
print(sparse.draw(9))
# --8<-- [end:draw]

# --8<-- [start:kinds]
# Two texts in one sequence, of three tokens and of two.
packed = regard.documents([0, 0, 0, 1, 1]) & regard.causal()
print(f"packed\n{packed.draw(5)}")

# A graph: each node looks at the next one.
ring = regard.neighbours([(0, 1), (1, 2), (2, 3), (3, 4), (4, 0)])
print(f"ring\n{ring.draw(5)}")

# A batch of two sentences, the second two words shorter.
padded = regard.padding([5, 3])
print(f"two words that look at each of two padded sentences\n{padded.draw(2, 5)}")
# --8<-- [end:kinds]

# --8<-- [start:picture]
# The nodes of a binary tree look at their parent and at their children.
parents = [((node - 1) // 2, node) for node in range(1, 24)]
links = parents + [(child, parent) for parent, child in parents]
gallery = {
    "everyone()": regard.everyone(),
    "causal()": regard.causal(),
    "window(4, after=4)": regard.window(before=4, after=4),
    "causal() & window(4)": regard.causal() & regard.window(before=4),
    "causal() & (near | every 6th)": regard.causal()
    & (regard.window(before=3) | regard.columns(every=6)),
    "documents(…)": regard.documents([0] * 9 + [1] * 6 + [2] * 9),
    "padding([18])": regard.padding([18]),
    "neighbours(tree)": regard.neighbours(links),
}
figure, panels = pyplot.subplots(2, 4, figsize=(9, 5), layout="constrained")
for panel, (name, pattern) in zip(panels.flat, gallery.items(), strict=True):
    mask = pattern.allows(range(24), range(24))
    panel.imshow(mask.reshape(24, 24).numpy(), cmap="Blues", vmin=0, vmax=1.4)
    panel.set_title(name, fontsize=9)
    panel.set(xticks=[], yticks=[])
figure.supxlabel("who is looked at, key 0 at the left", fontsize=9)
figure.supylabel("who looks, query 0 at the top", fontsize=9)
figure.savefig("patterns-gallery.svg")
# --8<-- [end:picture]

# --8<-- [start:count]
length = 4096
x = torch.zeros(1, 1, length, 64)

for pattern in (
    regard.everyone(),
    regard.causal(),
    regard.causal() & regard.window(before=63),
    regard.causal() & (regard.window(before=63) | regard.columns(every=64)),
):
    pairs = int(pattern.allows(range(length), range(length)).sum())
    plan = regard.plan(x, x, x, pattern=pattern)
    print(pattern)
    print(f"    {pairs:,} pairs, {pairs / length**2:.1%} of all, run by {plan.backend}")
# --8<-- [end:count]

# --8<-- [start:tokens]
MASK = 0
sentence = torch.tensor([[7, 3, 9, 4, 8]])
hidden = sentence.clone()
hidden[0, 2] = MASK  # BERT's training hides a word, and asks for it
other = hidden.clone()
other[0, -1] = 5  # another last word

for model in (
    TextEncoder(10, 16, num_layers=1, num_heads=1).eval(),
    TextDecoder(10, 16, num_layers=1, num_heads=1).eval(),
):
    weights = model.matrices(hidden)[0][0, 0]
    same = torch.allclose(model(hidden)[0, 2], model(other)[0, 2])
    print(type(model).__name__)
    print("    from the first word to the hidden one:", f"{weights[0, 2]:.2f}")
    print("    from the hidden word to the last one: ", f"{weights[2, 4]:.2f}")
    print("    the hidden word notices another last word:", not same)
# --8<-- [end:tokens]
