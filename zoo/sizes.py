"""The sizes of all small models: all different, so that no axis can pass for another."""

BATCH = 3
LENGTH = 23
TARGET_LENGTH = 13
"""Tokens of a decoder that looks at another text."""
LENGTHS = (23, 16, 6)
"""How many tokens of each sequence are no padding."""

HEADS = 4
KEY_HEADS = 2
HEAD_DIM = 8
WIDTH = 32
INNER = 44
LAYERS = 2
VOCABULARY = 120
FIRST_WORD, LAST_WORD = 10, 80
"""The tokens that texts are made of; those outside may mean something."""
POSITIONS = 128
WINDOW = 9
BLOCK = 5
EXPERTS, CHOSEN_EXPERTS = 6, 2
IMAGE, PATCH = 24, 4
LARGE_IMAGE = 64
"""Of models that halve their images many times."""
MEL_BINS = 16
FRAMES = 38
SAMPLES = 2000
QUERIES = 7
"""Learned queries of detectors and the like."""
