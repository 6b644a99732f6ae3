"""Fetch all materials and print where they are."""

from materials import minilm, smollm2

for material in (minilm, smollm2):
    print(material(), flush=True)
