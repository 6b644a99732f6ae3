"""Train a head in seconds, and look at what it has learned."""

# --8<-- [start:task]
import torch
from torch import nn

import regard
from regard import views
from regard.layers import SelfAttention

names = ["Ann", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gus", "Hal"]
drinks = ["tea", "milk", "wine", "beer"]


def parties(count):
    """Return names and drinks of 5 cards and 5 guests, [count, 10] each; a guest's drink is 4."""
    people = torch.rand(count, len(names)).argsort(dim=1)[:, :5]
    guests = people.gather(1, torch.rand(count, 5).argsort(dim=1))
    served = torch.randint(len(drinks), (count, 5))
    return torch.cat([people, guests], 1), torch.cat([served, torch.full_like(served, 4)], 1)


def answers(who, what):
    """Return the drink on the card of each guest, [count, 5]."""
    same = who[:, 5:, None] == who[:, None, :5]
    return (same * what[:, None, :5]).sum(dim=2)


# --8<-- [end:task]


# --8<-- [start:train]
class Waiter(nn.Module):
    def __init__(self, size=16):
        super().__init__()
        self.name, self.drink = nn.Embedding(len(names), size), nn.Embedding(5, size)
        self.look = SelfAttention(size)
        self.serve = nn.Linear(size, len(drinks))

    def vectors(self, who, what):
        return self.name(who) + self.drink(what)

    def forward(self, who, what):
        return self.serve(self.look(self.vectors(who, what)))[:, 5:]  # the guests alone


torch.manual_seed(0)
waiter = Waiter().double()
optimizer = torch.optim.Adam(waiter.parameters(), lr=0.02)
test = parties(1000)


def right():
    with torch.no_grad():
        return (waiter(*test).argmax(dim=-1) == answers(*test)).double().mean().item()


print(f"before training: {right():.0%} of the guests get their drink")
for _ in range(300):
    batch = parties(64)
    loss = nn.functional.cross_entropy(waiter(*batch).flatten(0, 1), answers(*batch).flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"after training: {right():.0%}")
# --8<-- [end:train]

# --8<-- [start:heatmap]
who, what = (x[:1] for x in test)
tokens = [names[person] for person in who[0]]
for place in range(5):
    tokens[place] += "=" + drinks[what[0, place]]
print(*tokens)

matrix = waiter.look.matrix(waiter.vectors(who, what))[0, 0]
views.heatmap(matrix, tokens).savefig("visualise-heatmap.svg")

weights = matrix.dense()
print("sums of rows:   ", *(f"{total:.2f}" for total in weights.sum(dim=1)))
print("sums of columns:", *(f"{total:.2f}" for total in weights.sum(dim=0)))
# --8<-- [end:heatmap]

# --8<-- [start:graph]
views.graph(matrix[5:, :], tokens, threshold=0.3).savefig("visualise-graph.svg")

edges = matrix[5:].edges(threshold=0.3)
for query, key, weight in zip(edges.queries, edges.keys, edges.weights, strict=True):
    print(f"{tokens[query]} looks at {tokens[key]}: {weight:.2f}")
# --8<-- [end:graph]

# --8<-- [start:entropy]
entropy, keys = matrix.entropy().nats, matrix.effective_keys().count
print("           entropy   tokens looked at, in effect")
for place, token in enumerate(tokens):
    print(f"{token:10} {entropy[place]:7.2f} {keys[place]:6.1f}")
# --8<-- [end:entropy]

# --8<-- [start:page]
regard.page(matrix, tokens, title="Who gets what").save("party.html")
# --8<-- [end:page]
