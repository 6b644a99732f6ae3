"""A look inside a real model."""

# --8<-- [start:watch]
import os

import torch
from transformers import AutoModel, AutoTokenizer, logging

import regard
from regard import views

logging.set_verbosity_error()
logging.disable_progress_bar()

name = os.environ.get("MODEL", "sentence-transformers/all-MiniLM-L6-v2")
tokenizer = AutoTokenizer.from_pretrained(name)
model = AutoModel.from_pretrained(name).eval()


def look(sentence):
    inputs = tokenizer(sentence, return_tensors="pt")
    with torch.no_grad(), regard.watch(model) as seen:
        model(**inputs)
    seen.verify()  # an error, if what was seen isn't what the model computed
    return tokenizer.convert_ids_to_tokens(inputs["input_ids"][0]), seen


tokens, seen = look("The animal didn't cross the street because it was too tired.")
print(len(seen), "layers of", seen[0].matrix.shape[1], "heads,", seen[0].pattern)
print(*tokens)
# --8<-- [end:watch]

# --8<-- [start:it]
it, animal, street = (tokens.index(word) for word in ("it", "animal", "street"))
# [layers, heads, tokens]
rows = torch.stack([call.matrix[0, :, it] for call in seen])

mean = rows.mean(dim=(0, 1))
for place in mean.topk(4).indices.tolist():
    print(f"mean of all heads: {mean[place]:.2f} on {tokens[place]}")

for place in rows[:, :, animal].flatten().topk(3).indices.tolist():
    layer, head = divmod(place, rows.shape[1])
    row = rows[layer, head]
    print(f"layer {layer}, head {head:2}:", end=" ")
    print(f"{row[animal]:.2f} on animal, {row[street]:.2f} on street")
# --8<-- [end:it]

# --8<-- [start:graph]
matrix = seen[2].matrix[0, 8]
words = slice(1, len(tokens) - 2)  # without [CLS], the full stop and [SEP]

found = matrix[words, words].edges(threshold=0.5)
edges = zip(found.queries, found.keys, found.weights, strict=True)
for query, key, weight in edges:
    print(f"{tokens[query]:>6} looks at {tokens[key]:7} with {weight:.2f}")

figure = views.graph(matrix[words, words], tokens[words], threshold=0.2)
figure.savefig("real-model-graph.svg")
# --8<-- [end:graph]

# --8<-- [start:rollout]
matrices = [call.matrix for call in seen]
for residual in (0.5, 0.9):
    mass = regard.rollout(matrices, tokens=[it], residual=residual)[0, 0]
    print(f"residual {residual}:", end="")
    for place in mass.topk(4).indices.tolist():
        print(f"  {tokens[place]} {mass[place]:.2f}", end="")
    print()
# --8<-- [end:rollout]

# --8<-- [start:page]
regard.page(seen, tokens, title="A tired animal").save("it.html")

figure = views.heads(seen, tokens=tokens)
figure.savefig("real-model-heads.png")

offsets = [call.matrix[0].offsets(1) for call in seen]
for where in ("previous", "itself", "next"):
    shares = torch.stack([getattr(found, where) for found in offsets])
    layer, head = divmod(int(shares.argmax()), shares.shape[1])
    print(f"{where:8}  {shares.max():.2f} in layer {layer}, head {head}")
# --8<-- [end:page]
