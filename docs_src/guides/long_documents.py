"""The attention of a long document."""

# --8<-- [start:document]
import torch
from matplotlib import pyplot

import regard
from regard.matrix import Entropy, Pool, TopKeys
from regard.models import TextDecoder

torch.manual_seed(0)

# Nine chapters of 2,048 words. Each theme has 100 words of its own, and three themes come back.
themes = [0, 1, 2, 0, 3, 1, 4, 2, 0]
chapters = [torch.randint(100, (2048,)) + 100 * theme for theme in themes]
tokens = torch.cat(chapters)[None]  # [1, 18432]

model = TextDecoder(500, model_dim=32, num_layers=2, num_heads=1, position_encoding=None).eval()
for block in model.layers:  # not trained: keys are made as queries are, so like looks at like
    torch.nn.init.normal_(block.attention.query.weight, std=0.3)
    block.attention.key.load_state_dict(block.attention.query.state_dict())
# --8<-- [end:document]

# --8<-- [start:watch]
with torch.no_grad(), regard.watch(model, keep=[Entropy(), TopKeys(8), Pool(288)]) as seen:
    model(tokens)
seen.verify()

for call in seen:
    entropy, strongest, picture = call.results
    print(f"{call.module}: {call.queries:,} × {call.keys:,}, {call.pattern}")
    print(f"    effective number of keys: {entropy.nats.exp().mean():.0f}")
    print("    strongest keys:", list(strongest.keys.shape), "picture:", list(picture.cells.shape))
# --8<-- [end:watch]

# --8<-- [start:cost]
length, key_dim, layers, megabyte = 18_432, 32, 2, 1_000_000
results = [result for call in seen for result in call.results]
kept = sum(tensor.nbytes for result in results for tensor in result.tensors.values())

print(f"results:          {kept / megabyte:7,.1f} MB")
print(f"queries and keys: {layers * 2 * length * key_dim * 4 / megabyte:7,.1f} MB")
print(f"the matrices:     {layers * length * length * 4 / megabyte:7,.1f} MB")
# --8<-- [end:cost]

# --8<-- [start:strongest]
entropy, strongest, picture = seen[1].results
keys = strongest.keys[0, 0, 8 * 2048 :]  # those of the last chapter, [2048, 8]
shares = torch.bincount((keys // 2048).flatten(), minlength=9) / keys.numel()
for chapter, share in enumerate(shares.tolist()):
    print(f"chapter {chapter}, theme {themes[chapter]}: {share:4.0%} of the strongest keys")
# --8<-- [end:strongest]

# --8<-- [start:picture]
figure, axes = pyplot.subplots(figsize=(5, 4.2), layout="constrained")
drawn = axes.imshow(picture.cells[0, 0].numpy(), norm="log", vmin=1e-6, vmax=1e-2, cmap="magma_r")
middles = [32 * chapter + 16 for chapter in range(9)]  # a cell is 64 tokens, a chapter 32 cells
axes.set_xticks(middles, labels=[f"theme {theme}" for theme in themes], rotation=45)
axes.set_yticks(middles, labels=[f"theme {theme}" for theme in themes])
axes.set(xlabel="is looked at", ylabel="looks")
figure.colorbar(drawn, label="mean weight of 64 × 64 pairs")
figure.savefig("long-documents-picture.png", dpi=150)
# --8<-- [end:picture]

# --8<-- [start:slices]
with torch.no_grad(), regard.watch(model, where=1) as seen:  # all of the second layer
    model(tokens)
A = seen[0].matrix[0, 0]
print(A)

row = A[-1]  # where the last token looks: 18,432 weights
print(f"the last token looks outside its chapter with {row[: 8 * 2048].sum():.2f}")
tile = A[8 * 2048 :, 3 * 2048 : 4 * 2048]  # the last chapter, looking at chapter 3
print(f"the last chapter looks at chapter 3 with {tile.dense().sum(dim=1).mean():.2f}")
print("closer:", list(tile[:128, :128].dense().shape), "pooled:", list(tile.pool(64).cells.shape))
# --8<-- [end:slices]

# --8<-- [start:refused]
try:
    A.dense()
except ValueError as error:
    print(str(error).partition(":")[0])
# --8<-- [end:refused]
