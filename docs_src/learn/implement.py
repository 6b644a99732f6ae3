"""Attention in a dozen lines, held against the library; then what the fused kernels change."""

# --8<-- [start:function]
import math

import torch
from matplotlib import pyplot
from torch import nn

import regard
from regard.layers import SelfAttention


def attention(query, key, value, allowed=None):
    """Return outputs and weights; tensors are [..., sequence, dim]."""
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    if allowed is not None:  # True where a query may look
        scores = scores.masked_fill(~allowed, -torch.inf)
    weights = scores.softmax(dim=-1)
    return weights @ value, weights


# --8<-- [end:function]

# --8<-- [start:compare]
torch.manual_seed(0)
query, key = torch.randn(2, 1, 4, 10, 8, dtype=torch.float64)  # 1 sequence, 4 heads, 10 tokens
value = torch.randn(1, 4, 10, 5, dtype=torch.float64)
tensors = [x.requires_grad_() for x in (query, key, value)]

causal = torch.ones(10, 10, dtype=torch.bool).tril()  # at oneself and what came before
ours, weights = attention(query, key, value, causal)
theirs = regard.attend(query, key, value, pattern=regard.causal(), backend="reference")

chance = torch.randn_like(ours)  # a gradient to send back
gradients = [torch.autograd.grad(output, tensors, chance) for output in (ours, theirs)]

print("the same output:", torch.allclose(ours, theirs))
for name, mine, other in zip(("query", "key", "value"), *gradients, strict=True):
    print(f"the same gradient of {name}:", torch.allclose(mine, other))
print("the first token looks at", weights[0, 0, 0].count_nonzero().item(), "token")
print("the last token looks at", weights[0, 0, -1].count_nonzero().item(), "tokens")
# --8<-- [end:compare]


# --8<-- [start:layer]
class OneHead(nn.Module):
    def __init__(self, model_dim, key_dim, value_dim):
        super().__init__()
        self.query = nn.Linear(model_dim, key_dim, bias=False)
        self.key = nn.Linear(model_dim, key_dim, bias=False)
        self.value = nn.Linear(model_dim, value_dim, bias=False)

    def forward(self, x):
        return attention(self.query(x), self.key(x), self.value(x))[0]


own = OneHead(model_dim=6, key_dim=3, value_dim=4)
layer = SelfAttention(model_dim=6, key_dim=3, value_dim=4)
print(layer.load_state_dict(own.state_dict()))

x = torch.randn(1, 10, 6)
print("the same output:", torch.allclose(own(x), layer(x), atol=1e-6))
# --8<-- [end:layer]

# --8<-- [start:cost]
lengths = [1_000, 10_000, 100_000, 1_000_000]
matrix = [4 * n * n for n in lengths]  # bytes, 4 for each number
vectors = [4 * n * (64 + 64 + 64 + 64 + 1) for n in lengths]  # Q, K, V, output, log-sum-exp
operations = [4 * n * n * 64 for n in lengths]  # a product and a sum, in Q Kᵀ and in A V

print("tokens         the matrix   the vectors        operations")
for n, large, small, count in zip(lengths, matrix, vectors, operations, strict=True):
    print(f"{n:<10,} {large / 1e6:11,.0f} MB {small / 1e6:10,.0f} MB {count / 1e9:11,.1f} billion")

long = torch.empty(1, 1, 10_000, 64)
print(regard.plan(long, long, long))
# --8<-- [end:cost]

# --8<-- [start:picture]
figure, ax = pyplot.subplots(figsize=(5.0, 3.4), layout="constrained")
ax.loglog(lengths, matrix, "o-", color="#d55e00", label="the attention matrix of one head")
ax.loglog(lengths, vectors, "o-", color="#0072b2", label="queries, keys, values, output, lse")
ax.set(xlabel="tokens", ylabel="bytes")
ax.set_xticks(lengths, ["1 thousand", "10 thousand", "100 thousand", "1 million"])
ax.set_yticks([1e6, 1e9, 1e12], ["1 MB", "1 GB", "1 TB"])
ax.minorticks_off()
ax.grid(alpha=0.3)
ax.legend(frameon=False)
figure.savefig("implement-memory.svg")
# --8<-- [end:picture]

# --8<-- [start:weight]
query, key, value = torch.randn(3, 1, 1, 10_000, 64)  # 10,000 tokens

output, lse = regard.attend_with_lse(query, key, value, pattern=regard.causal())

score = query[0, 0, 9_000] @ key[0, 0, 4_000] / 8  # √64 = 8
alone = torch.exp(score - lse[0, 0, 9_000])

A = regard.AttentionMatrix(query, key, pattern=regard.causal(), lse=lse)
print(A)
print("one weight, alone and from the matrix:", torch.allclose(alone, A[0, 0, 9_000, 4_000]))
print(f"its row sums up to {A[0, 0, 9_000].sum():.4f}")
print("the row times the values is the output:", end=" ")
print(torch.allclose(A[0, 0, 9_000] @ value[0, 0], output[0, 0, 9_000], atol=1e-5))
# --8<-- [end:weight]
