"""Attention inside a recurrent network."""

# --8<-- [start:by_hand]
import torch
from matplotlib import pyplot
from matplotlib.colors import PowerNorm
from torch import nn

import regard
from regard.layers import MultiHeadAttention, RecurrentSelfAttention

torch.manual_seed(0)
x = torch.randn(5, 3)  # five tokens
A = torch.randn(4, 3 + 4)  # from [x, c] to h

context = torch.zeros(4)  # c_0
states = []
for t, token in enumerate(x, start=1):
    states.append(torch.tanh(A @ torch.cat([token, context])))  # h_t
    earlier = torch.stack(states)  # h_1 … h_t: there are no others yet
    weights = torch.softmax(earlier @ states[-1], dim=0)  # α_t, align is dot
    context = weights @ earlier  # c_t
    print(f"t = {t}  α", " ".join(f"{weight:.2f}" for weight in weights))
# --8<-- [end:by_hand]

# --8<-- [start:layer]
layer = RecurrentSelfAttention(input_dim=3, state_dim=4, align="dot")
with torch.no_grad():
    layer.transition.weight.copy_(A)

output = layer(x[None])
same = torch.allclose(output.contexts[0, -1], context, atol=1e-6)
print("the last context is the one above:", same)
same = torch.equal(output.contexts[0, 0], output.states[0, 0])
print("the first context is the first state:", same)

past = None
for t, token in enumerate(x, start=1):
    weights, past = layer.step(token[None], past)
    state, context = past.states[0, -1], past.context[0]
    print(f"t = {t}  h", *(f"{number:5.2f}" for number in state), end="")
    print("   c", *(f"{number:5.2f}" for number in context))
# --8<-- [end:layer]

# --8<-- [start:align]
matrices = {}
longer = torch.randn(1, 12, 3)
for align in ("dot", "scaled_dot", "bilinear", "additive"):
    torch.manual_seed(1)
    layer = RecurrentSelfAttention(input_dim=3, state_dim=16, align=align)
    matrices[align] = layer(longer).weights[0].detach()
    learned = sum(parameter.numel() for parameter in layer.align.parameters())
    print(f"{align:10}  {learned:3} numbers to learn, last row sums to", end=" ")
    print(f"{matrices[align][-1].sum():.2f}")
# --8<-- [end:align]

# --8<-- [start:distance]
torch.manual_seed(0)
plain = nn.RNN(32, 32, batch_first=True)
recurrent = RecurrentSelfAttention(32, 32)
attention = MultiHeadAttention(32, num_heads=1, pattern=regard.causal())
layers = {
    "RNN": lambda x: plain(x)[0],
    "RNN with self-attention": lambda x: recurrent(x).contexts,
    "attention": attention,
}


def chain(output):
    """Count the longest chain of operations that wait for each other."""
    longest = {None: 0}
    waiting = [output.grad_fn]
    while waiting:
        before = [node for node, _ in waiting[-1].next_functions]
        missing = [node for node in before if node not in longest]
        waiting += missing
        if not missing:
            steps = 1 + max((longest[node] for node in before), default=0)
            longest[waiting.pop()] = steps
    return longest[output.grad_fn]


gradients = {}
for name, run in layers.items():
    tokens = torch.randn(16, 64, 32, requires_grad=True)
    last = run(tokens)[:, -1]
    (gradient,) = torch.autograd.grad(last, tokens, torch.randn_like(last))
    norms = gradient.norm(dim=-1).mean(dim=0).flip(0)
    gradients[name] = norms / norms[0]
    short, long = (chain(run(torch.randn(1, n, 32))) for n in (32, 64))
    print(name)
    print(f"    each token adds {(long - short) / 32:.0f} operations to the chain")
    print(f"    32 steps back, {gradients[name][32]:.0e} of the gradient is left")
# --8<-- [end:distance]

# --8<-- [start:picture]
figure, panels = pyplot.subplots(1, 4, figsize=(9, 2.9), layout="constrained")
for panel, (align, weights) in zip(panels, matrices.items(), strict=True):
    image = panel.imshow(weights.numpy(), cmap="Blues", norm=PowerNorm(0.5, 0, 1))
    panel.set_title(align, fontsize=10)
    panel.set_xticks(range(0, 12, 3), range(1, 13, 3))
    panel.set_yticks(range(0, 12, 3), range(1, 13, 3))
    panel.set_xlabel("state i")
panels[0].set_ylabel("step t")
figure.colorbar(image, ax=panels, label="weight α", shrink=0.8, ticks=[0, 0.1, 0.3, 0.6, 1])
figure.savefig("recurrent-weights.svg")

figure, panel = pyplot.subplots(figsize=(5, 3.2), layout="constrained")
for name, norms in gradients.items():
    panel.plot(norms, label=name)
panel.set(xlabel="steps back", ylabel="gradient, of that at 0", yscale="log", ylim=(1e-9, 3))
panel.legend(frameon=False)
figure.savefig("recurrent-gradients.svg")
# --8<-- [end:picture]
