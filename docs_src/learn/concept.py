"""What attention is, in two numbers a word."""

# --8<-- [start:vectors]
import torch
from matplotlib import pyplot

import regard
from regard import views

words = ["Apple", "hired", "the", "cook", "who", "peeled", "an", "apple"]

table = {  # how much of food, and how much of trade, is in each word
    "apple": [1.0, 1.0],
    "hired": [0.0, 2.0],
    "cook": [2.0, 0.5],
    "peeled": [2.0, 0.0],
}
vectors = torch.tensor([table.get(word.lower(), [0.0, 0.0]) for word in words])

for word, (food, trade) in zip(words, vectors.tolist(), strict=True):
    print(f"{word:8} {food:.1f} {trade:.1f}")
# --8<-- [end:vectors]

# --8<-- [start:weights]
near = slice(5, 8)  # "peeled an apple"

scores = vectors[near] @ vectors[7]
weights = torch.softmax(scores, dim=0)

for word, score, weight in zip(words[near], scores, weights, strict=True):
    print(f"{word:8} {score:.1f} {weight:.3f}")
print(f"together     {weights.sum():.3f}")
# --8<-- [end:weights]

# --8<-- [start:mean]
print("before", vectors[7].tolist())
print("after ", [round(number, 2) for number in (weights @ vectors[near]).tolist()])
# --8<-- [end:mean]

# --8<-- [start:all]
x = vectors[None, None]  # one sequence, one head
contextual = regard.attend(x, x, x, pattern=regard.window(before=2, after=2), scale=1.0)[0, 0]

alike = torch.nn.functional.cosine_similarity
for place in (0, 7):
    food, trade = contextual[place].tolist()
    print(f"{words[place]:8} {food:.2f} {trade:.2f}")
print(f"how alike the two are, before: {alike(vectors[0], vectors[7], dim=0):.2f}")
print(f"how alike the two are, after:  {alike(contextual[0], contextual[7], dim=0):.2f}")
# --8<-- [end:all]

# --8<-- [start:picture]
matrix = regard.AttentionMatrix(x, x, pattern=regard.window(before=2, after=2), scale=1.0)
views.heatmap(matrix, words).savefig("concept-weights.svg")

figure, ax = pyplot.subplots(figsize=(4.8, 4.0), layout="constrained")
for word, vector in zip(words, vectors, strict=True):
    if word in ("hired", "cook", "peeled"):
        ax.plot(*vector, "o", color="grey")
        ax.annotate(word, vector, (7, 5), textcoords="offset points", color="grey")
ax.plot(*vectors[0], "o", color="black")
ax.annotate("Apple and apple, before", vectors[0], (9, -3), textcoords="offset points")
for place, colour in ((0, "#0072b2"), (7, "#d55e00")):
    arrow = {"arrowstyle": "->", "color": colour, "shrinkA": 6, "shrinkB": 6}
    ax.annotate("", contextual[place], vectors[place], arrowprops=arrow)
    ax.plot(*contextual[place], "o", color=colour)
    below = (-10, -16) if place else (-10, 9)
    text = f"{words[place]}, after"
    ax.annotate(text, contextual[place], below, textcoords="offset points", color=colour)
ax.set(xlabel="food", ylabel="trade", xlim=(-0.2, 2.8), ylim=(-0.2, 2.3), aspect="equal")
figure.savefig("concept-apples.svg")
# --8<-- [end:picture]
