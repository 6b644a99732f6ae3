"""One head cannot do what two can; then the layer as it is used."""

# --8<-- [start:task]
import torch
from torch import nn

from regard import views
from regard.layers import MultiHeadAttention

names = ["Ann", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gus", "Hal"]
drinks = ["tea", "milk", "wine", "beer"]


def parties(count):
    """Return names and drinks on 5 cards, [count, 5], and 5 pairs of guests, [count, 5, 2]."""
    people = torch.rand(count, len(names)).argsort(dim=1)[:, :5]
    guests = people.gather(1, torch.rand(count, 5).argsort(dim=1))
    served = torch.randint(len(drinks), (count, 5))
    return people, served, torch.stack([guests, guests.roll(1, dims=1)], dim=2)


def answers(people, served, pairs):
    """Return the drinks of both people of each pair, [count, 5, 2]."""
    return ((pairs[..., None] == people[:, None, None]) * served[:, None, None]).sum(dim=-1)


# --8<-- [end:task]


# --8<-- [start:train]
class Waiter(nn.Module):
    def __init__(self, num_heads, size=16):
        super().__init__()
        self.name, self.drink = nn.Embedding(len(names), size), nn.Embedding(len(drinks), size)
        self.first, self.second = nn.Embedding(len(names), size), nn.Embedding(len(names), size)
        self.look = MultiHeadAttention(size, num_heads, key_dim=32 // num_heads)
        self.serve = nn.Linear(size, 2 * len(drinks))

    def vectors(self, people, served, pairs):
        """Return the vectors that look, the pairs, and those that are looked at, the cards."""
        looking = self.first(pairs[..., 0]) + self.second(pairs[..., 1])
        return looking, self.name(people) + self.drink(served)

    def forward(self, people, served, pairs):
        looking, cards = self.vectors(people, served, pairs)
        return self.serve(self.look(looking, context=cards)).unflatten(-1, (2, len(drinks)))


def train(num_heads):
    torch.manual_seed(0)
    waiter, test = Waiter(num_heads).double(), parties(1000)
    optimizer = torch.optim.Adam(waiter.parameters(), lr=0.02)
    for _ in range(300):
        batch = parties(64)
        logits = waiter(*batch).flatten(0, 2)
        loss = nn.functional.cross_entropy(logits, answers(*batch).flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        first, second = (waiter(*test).argmax(dim=-1) == answers(*test)).double().mean(dim=(0, 1))
    print(f"heads: {num_heads}   first guests right: {first:.0%}   second guests: {second:.0%}")
    return waiter, test


train(1)
waiter, test = train(2)
# --8<-- [end:train]

# --8<-- [start:picture]
one = [x[:1] for x in test]
cards = [f"{names[who]}={drinks[what]}" for who, what in zip(one[0][0], one[1][0], strict=True)]
guests = [f"{names[first]}+{names[second]}" for first, second in one[2][0]]

looking, context = waiter.vectors(*one)
matrix = waiter.look.matrix(looking, context)[0]
print(matrix)
views.heatmap(matrix, guests, key_tokens=cards).savefig("multi-head-two.svg")
# --8<-- [end:picture]

# --8<-- [start:shapes]
layer = MultiHeadAttention(model_dim=48, num_heads=6)  # heads of 48 / 6 = 8 numbers
x = torch.randn(2, 10, 48)  # 2 sequences of 10 tokens

print("queries of all heads:", list(layer.query(x).shape))
print("the same, head by head:", list(layer.query(x).unflatten(-1, (6, 8)).transpose(1, 2).shape))
print("attention:", layer.matrix(x))
print("output:", list(layer(x).shape))
for num_heads in (1, 6, 48):
    parameters = sum(p.numel() for p in MultiHeadAttention(48, num_heads).parameters())
    print(f"heads: {num_heads:2}   parameters: {parameters:,}")
# --8<-- [end:shapes]

# --8<-- [start:grouped]
grouped = MultiHeadAttention(model_dim=48, num_heads=6, num_key_heads=2)

# The same layer with the key and value heads written out, each three times.
written = MultiHeadAttention(model_dim=48, num_heads=6)
weights = grouped.state_dict()
for name in ("key.weight", "key.bias", "value.weight", "value.bias"):
    weights[name] = weights[name].unflatten(0, (2, 8)).repeat_interleave(3, dim=0).flatten(0, 1)
written.load_state_dict(weights)

print("the same output:", torch.allclose(grouped(x), written(x), atol=1e-6))
print("numbers to keep of each token:", 2 * 2 * 8, "instead of", 2 * 6 * 8)
# --8<-- [end:grouped]

# --8<-- [start:torch]
theirs = nn.MultiheadAttention(48, 6, batch_first=True)
ours = MultiHeadAttention(48, 6)
print(ours.load_state_dict(theirs.state_dict()))

output, weights = theirs(x, x, x, average_attn_weights=False)
print("the same output:", torch.allclose(ours(x), output, atol=1e-6))
print("the same weights:", torch.allclose(ours.matrix(x).dense(), weights, atol=1e-6))
# --8<-- [end:torch]
