"""Training with sparse patterns."""

# --8<-- [start:plan]
import math

import torch
from matplotlib import pyplot
from torch import nn
from torch.nn import functional

import regard
from regard.models import TextDecoder

sparse = regard.causal() & (regard.window(before=63) | regard.columns(every=64))

for length in (256, 4096, 16_384):
    x = torch.zeros(1, 8, length, 64)
    print(f"{length:,}: {regard.plan(x, x, x, pattern=sparse)}")
# --8<-- [end:plan]


# --8<-- [start:module]
class Attention(nn.Module):
    def __init__(self, model_dim, num_heads, pattern):
        super().__init__()
        self.num_heads, self.pattern = num_heads, pattern
        self.projections = nn.Linear(model_dim, 3 * model_dim)
        self.output = nn.Linear(model_dim, model_dim)

    def forward(self, x):  # [batch, sequence, model_dim]
        heads = self.projections(x).unflatten(-1, (3, self.num_heads, -1))
        query, key, value = heads.permute(2, 0, 3, 1, 4)  # [batch, heads, sequence, dim] each
        seen = regard.attend(query, key, value, pattern=self.pattern)
        return self.output(seen.transpose(1, 2).flatten(start_dim=2))


torch.manual_seed(0)
layer = Attention(64, num_heads=4, pattern=sparse)
print(layer(torch.randn(2, 1000, 64)).shape)
# --8<-- [end:module]

# --8<-- [start:gradients]
tensors = [torch.randn(1, 2, 1000, 16, requires_grad=True) for _ in range(3)]
ahead = torch.randn(1, 2, 1000, 16)


def gradients(backend):
    output = regard.attend(*tensors, pattern=sparse, backend=backend)
    return torch.autograd.grad(output, tensors, ahead)


for name, ours, exact in zip("qkv", gradients("blocks"), gradients("reference"), strict=True):
    print(name, "is the same:", torch.allclose(ours, exact, atol=1e-5))
# --8<-- [end:gradients]

# --8<-- [start:task]
LENGTH, WORDS, OWN = 384, 16, 4


def texts(count):
    """Return texts of 4 words out of 16, other ones in each: to guess well, look back."""
    own = torch.stack([torch.randperm(WORDS)[:OWN] for _ in range(count)])
    return own.gather(1, torch.randint(OWN, (count, LENGTH)))


def train(pattern, steps=50):
    torch.manual_seed(0)
    model = TextDecoder(
        WORDS,
        model_dim=32,
        num_layers=1,
        num_heads=2,
        hidden_dim=0,
        position_encoding=None,
        pattern=pattern,
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(steps):
        tokens = texts(8)
        logits = model(tokens[:, :-1])
        loss = functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


# --8<-- [end:task]

# --8<-- [start:train]
near = regard.window(before=3)
choices = {
    "window": regard.causal() & near,
    "window and columns": regard.causal() & (near | regard.columns(every=16)),
    "causal": regard.causal(),
}
curves = {}
for name, pattern in choices.items():
    losses = curves[name] = train(pattern)
    pairs = int(pattern.allows(range(LENGTH), range(LENGTH)).sum())
    print(f"{name:18} {pairs:7,} pairs, loss {losses[0]:.1f} → {sum(losses[-10:]) / 10:.1f}")
# --8<-- [end:train]

# --8<-- [start:picture]
figure, axes = pyplot.subplots(figsize=(5, 2.8), layout="constrained")
for name, losses in curves.items():
    axes.plot(losses, label=name)
axes.axhline(math.log(OWN), color="grey", linestyle=":", label="the best there is")
axes.set(xlabel="step", ylabel="loss, nats a word", ylim=(1.3, 3.2))
axes.legend(loc="upper right", ncols=2)
figure.savefig("sparse-training-losses.svg")
# --8<-- [end:picture]
