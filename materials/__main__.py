"""Fetch all materials and print where they are."""

from materials import axe_core, minilm, moby_dick, smollm2, treebank

for material in (minilm, smollm2, moby_dick, treebank, axe_core):
    print(material(), flush=True)
