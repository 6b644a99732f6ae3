import re

import pytest

from regard.models.stack import AttentionEncoding, attention_encoding
from regard.positions import Relative, Rotary, alibi, softcap
from regard.positions.alibi import Alibi


@pytest.mark.parametrize("positions", [None, "learned", "sinusoidal"])
def test_what_embeddings_tell_attention_is_not_told(positions: str | None) -> None:
    assert attention_encoding(
        positions, num_heads=3, key_dim=4, bidirectional=True
    ) == AttentionEncoding(None, None)


def test_rotary_turns_whole_heads() -> None:
    told = attention_encoding("rotary", num_heads=3, key_dim=10, bidirectional=True)
    assert told.bias is None
    assert isinstance(told.rotary, Rotary)
    assert told.rotary.dim == 10


@pytest.mark.parametrize("bidirectional", [True, False])
def test_biases_have_as_many_heads(bidirectional: bool) -> None:
    for name, kind in (("alibi", Alibi), ("relative", Relative)):
        told = attention_encoding(name, num_heads=3, key_dim=4, bidirectional=bidirectional)
        assert told.rotary is None
        assert isinstance(told.bias, kind)
        assert told.bias.num_heads == 3
    assert told.bias.bidirectional is bidirectional


def test_objects_are_taken_as_they_are() -> None:
    rotary = Rotary(4)
    assert attention_encoding(
        rotary, num_heads=3, key_dim=4, bidirectional=True
    ) == AttentionEncoding(rotary=rotary)
    for bias in (alibi(3), Relative(3), softcap(5.0)):
        told = attention_encoding(bias, num_heads=3, key_dim=4, bidirectional=True)
        assert told.bias is bias
        assert told.rotary is None


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("wrong", ["cosine", "", 3])
def test_other_names_are_refused(wrong: object) -> None:
    message = (
        'position_encoding must be one of "learned", "sinusoidal", "rotary", "alibi", "relative", '
        f"a Rotary, a Bias or None, got {wrong!r}"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        attention_encoding(wrong, num_heads=3, key_dim=4, bidirectional=True)
