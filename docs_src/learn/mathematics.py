"""Queries, keys and values, and why scores are divided by √d_k."""

# --8<-- [start:projections]
import torch
from matplotlib import pyplot

from regard import views

torch.manual_seed(0)
num_tokens, model_dim, key_dim, value_dim = 5, 6, 3, 4

X = torch.randn(num_tokens, model_dim)  # a vector for each token
W_Q, W_K = torch.randn(2, model_dim, key_dim)
W_V = torch.randn(model_dim, value_dim)

Q, K, V = X @ W_Q, X @ W_K, X @ W_V
S = Q @ K.T / key_dim**0.5  # scores
A = torch.softmax(S, dim=1)  # weights
Y = A @ V  # outputs

for name, matrix in {"X": X, "Q": Q, "K": K, "V": V, "S": S, "A": A, "Y": Y}.items():
    print(name, *matrix.shape, sep="  ")
# --8<-- [end:projections]

# --8<-- [start:bilinear]
W = W_Q @ W_K.T / key_dim**0.5

print("W has shape", list(W.shape), "and rank", int(torch.linalg.matrix_rank(W)))
print("the same scores:", torch.allclose(X @ W @ X.T, S, atol=1e-5))
print("token 0 looks at token 1 with", f"{A[0, 1]:.3f}")
print("token 1 looks at token 0 with", f"{A[1, 0]:.3f}")
# --8<-- [end:bilinear]

# --8<-- [start:scale]
sizes = [1, 4, 16, 64, 256, 1024]
found = {}
print("                           plain             divided by √d_k")
print("d_k    variance   largest weight  slope   largest weight  slope")
for size in sizes:
    queries, keys = torch.randn(2000, size), torch.randn(32, size)
    scores = queries @ keys.T
    print(f"{size:<6} {scores.var():8.1f}", end="")
    for name, factor in (("plain", 1.0), ("divided by √d_k", size**-0.5)):
        largest = (factor * scores).softmax(dim=1).amax(dim=1)
        slope = largest * (1 - largest)  # how fast it changes with its score
        found[name, size] = largest.median().item()
        print(f"{largest.median():17.2f} {slope.median():6.3f}", end="")
    print()
# --8<-- [end:scale]

# --8<-- [start:worked]
example = views.worked_example("it")

print("the query of “it”:", example.query.tolist())
print("         key               score  scaled  weight   value")
rows = zip(example.tokens, example.keys, example.values, strict=True)
for place, (token, key, value) in enumerate(rows):
    numbers = [f"{x[place]:.3f}" for x in (example.scores, example.scaled, example.weights)]
    print(f"{token:8}", key.tolist(), "", "   ".join(numbers), " ", value.tolist())
print("the sum:", [round(number, 3) for number in example.output.tolist()])
# --8<-- [end:worked]

# --8<-- [start:picture]
views.steps(example).savefig("mathematics-steps.svg")

figure, ax = pyplot.subplots(figsize=(5.0, 3.2), layout="constrained")
for name, colour in (("plain", "#d55e00"), ("divided by √d_k", "#0072b2")):
    ax.plot(sizes, [found[name, size] for size in sizes], "o-", color=colour, label=name)
ax.axhline(1 / 32, color="grey", linestyle=":", label="all 32 alike")
ax.set(
    xscale="log", xlabel="size of queries and keys, d_k", ylabel="largest weight", ylim=(0, 1.04)
)
ax.set_xticks(sizes, sizes)
ax.minorticks_off()
ax.legend(frameon=False)
figure.savefig("mathematics-scale.svg")
# --8<-- [end:picture]
