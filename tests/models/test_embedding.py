import pytest
import torch

from regard.models.embedding import TokenEmbedding
from regard.positions import sinusoidal
from tests.models.cases import lively, tokens_of

BATCH, LENGTH, VOCABULARY, MODEL_DIM = 3, 7, 17, 10
TOKENS = tokens_of(BATCH, LENGTH, vocabulary=VOCABULARY)
STARTS = torch.tensor([0, 4, 2])


def embedding_of(positions: str | None, num_types: int = 0) -> TokenEmbedding:
    return lively(
        TokenEmbedding(
            VOCABULARY,
            MODEL_DIM,
            position_encoding=positions,
            num_positions=13,
            num_types=num_types,
        )
    )


def vectors(embedding: TokenEmbedding, positions: str | None) -> torch.Tensor:
    """Return the vectors of 13 positions."""
    if positions == "learned":
        assert embedding.positions is not None
        return embedding.positions.table
    if positions == "sinusoidal":
        return sinusoidal(13, MODEL_DIM)
    return torch.zeros(13, MODEL_DIM)


@pytest.mark.parametrize("positions", ["learned", "sinusoidal", "rotary", None])
@pytest.mark.parametrize("offset", [0, 5])
@pytest.mark.parametrize("starts", [None, STARTS])
def test_a_vector_is_the_sum_of_those_of_token_and_position(
    positions: str | None, offset: int, starts: torch.Tensor | None
) -> None:
    embedding = embedding_of(positions)
    found = embedding(TOKENS, offset=offset, starts=starts)
    where = vectors(embedding, positions)
    for batch in range(BATCH):
        start = 0 if starts is None else int(starts[batch])
        for index in range(LENGTH):
            # The first token of a sequence stands at 0, and so does the padding before it.
            position = max(offset + index - start, 0)
            token = embedding.tokens.weight[TOKENS[batch, index]]
            assert torch.equal(found[batch, index], token + where[position])


def test_types_are_added() -> None:
    embedding = embedding_of(None, num_types=3)
    types = tokens_of(BATCH, LENGTH, vocabulary=4, seed=1) - 1
    assert embedding.types is not None
    words = embedding.tokens.weight[TOKENS]
    assert torch.equal(embedding(TOKENS, types=types), words + embedding.types.weight[types])
    assert torch.equal(embedding(TOKENS), words + embedding.types.weight[0])


def test_types_of_a_model_without_are_refused() -> None:
    message = "^types must be None: the model has no token types$"
    with pytest.raises(ValueError, match=message):
        embedding_of("learned")(TOKENS, types=torch.zeros_like(TOKENS))


def test_only_learned_positions_have_a_table() -> None:
    assert [name for name, _ in embedding_of("sinusoidal").named_parameters()] == ["tokens.weight"]
    names = [name for name, _ in embedding_of("learned", num_types=2).named_parameters()]
    assert names == ["tokens.weight", "types.weight", "positions.table"]


def test_past_the_table_there_is_no_vector() -> None:
    message = "positions must be from 0 to 12, got 13: increase num_positions"
    with pytest.raises(IndexError, match=message):
        embedding_of("learned")(TOKENS, offset=7)


def test_no_vocabulary_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^vocabulary_size must be at least 1, got 0$"):
        TokenEmbedding(0, MODEL_DIM, position_encoding=None, num_positions=3)
