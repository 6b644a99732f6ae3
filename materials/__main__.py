"""Fetch all materials and print where they are."""

from materials import minilm, moby_dick, smollm2, treebank

for material in (minilm, smollm2, moby_dick, treebank):
    print(material(), flush=True)
