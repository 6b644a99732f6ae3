"""Weights of transformers' models under our names, one file per model type.

Each has one function, from a model of transformers to the arguments and the state dict of our
class. transformers is not imported.
"""

from regard.models.weights.bert import bert
from regard.models.weights.gpt2 import gpt2
from regard.models.weights.llama import llama
from regard.models.weights.loaded import loaded
from regard.models.weights.vit import vit

__all__ = ["bert", "gpt2", "llama", "loaded", "vit"]
