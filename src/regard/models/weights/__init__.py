"""Weights of transformers' models under our names, one file for each kind of model.

Each has one function: from a model of transformers to the arguments of our class and the tensors of
its state dict. The model and its config are only read; transformers itself is not imported.
"""

from regard.models.weights.bert import bert
from regard.models.weights.gpt2 import gpt2
from regard.models.weights.llama import llama
from regard.models.weights.loaded import loaded
from regard.models.weights.vit import vit

__all__ = ["bert", "gpt2", "llama", "loaded", "vit"]
