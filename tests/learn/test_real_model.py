"""The exercise of docs/learn/real-model.md."""

import pytest
import torch
from transformers import AutoModel, AutoTokenizer

import regard
from materials import minilm

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quiet_transformers")]


@pytest.fixture(scope="module")
def name() -> str:
    return str(minilm())


# --8<-- [start:solution]
def test_another_last_word_moves_the_head_but_does_not_turn_it_round(name: str) -> None:
    tokenizer, model = AutoTokenizer.from_pretrained(name), AutoModel.from_pretrained(name).eval()

    def weights(last_word: str) -> tuple[float, float]:
        sentence = f"The animal didn't cross the street because it was too {last_word}."
        inputs = tokenizer(sentence, return_tensors="pt")
        with torch.no_grad(), regard.watch(model) as seen:
            model(**inputs)
        tokens = tokenizer.convert_ids_to_tokens(inputs["input_ids"][0])
        row = seen[3].matrix[0, 1, tokens.index("it")]
        return float(row[tokens.index("animal")]), float(row[tokens.index("street")])

    tired_animal, tired_street = weights("tired")
    wide_animal, wide_street = weights("wide")
    assert tired_animal > 10 * tired_street
    # It moves the right way: less than half as much to the animal, twice as much to the street.
    assert wide_animal < tired_animal / 2
    assert wide_street > tired_street * 2
    # But a reader would now take "it" for the street, and this head still prefers the animal.
    assert wide_animal > 2 * wide_street


# --8<-- [end:solution]
