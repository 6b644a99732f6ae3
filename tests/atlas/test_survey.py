"""A survey in this process: the same numbers however it is cut, batched and ordered."""

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import regard
from materials import minilm, smollm2
from regard import atlas
from regard.atlas import Atlas, Loader, pretrained, survey
from regard.atlas.shard_windows import Settings, prepare
from regard.atlas.surveyor import Surveyor
from regard.atlas.tables import tables
from regard.atlas.tally import Tally
from regard.atlas.text_windows import repeated_windows
from regard.atlas.units import find_units, into_shards
from tests.atlas.surveying import (
    assert_alike,
    book,
    exact,
    mixed_corpus,
    sentences,
    small_model,
)

pytestmark = pytest.mark.usefixtures("one_thread", "quiet_transformers")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return mixed_corpus(tmp_path_factory.mktemp("mixed") / "corpus")


@pytest.fixture(scope="module")
def whole(corpus: Path, loader: Loader, tmp_path_factory: pytest.TempPathFactory) -> Atlas:
    """A survey in one shard."""
    out = tmp_path_factory.mktemp("whole") / "a.atlas"
    return survey(corpus, out, loader, length=64, shards=1, batch_size=8)


@pytest.mark.parametrize(("shards", "batch_size"), [(2, 1), (5, 32)])
def test_how_the_work_is_cut_changes_nothing(
    corpus: Path, loader: Loader, whole: Atlas, tmp_path: Path, shards: int, batch_size: int
) -> None:
    cut = survey(
        corpus, tmp_path / "a.atlas", loader, length=64, shards=shards, batch_size=batch_size
    )
    assert_all_alike(cut, whole)


def test_how_the_work_is_cut_changes_nothing_of_a_decoder(corpus: Path, tmp_path: Path) -> None:
    loader = exact(small_model(tmp_path / "decoder", "grouped decoder"))
    one, five = (
        survey(corpus, tmp_path / f"{n}.atlas", loader, length=64, shards=n, batch_size=size)
        for n, size in ((1, 32), (5, 2))
    )
    assert_all_alike(five, one)


def assert_all_alike(cut: Atlas, whole: Atlas) -> None:
    assert_alike(cut, whole)
    # Comparing nothing with nothing proves nothing.
    for name in ("heads", "offsets", "distances", "relations", "coreference", "examples"):
        assert len(cut.frame(name)) >= cut.about.layers * cut.about.heads


def test_nothing_is_dropped(corpus: Path, loader: Loader, whole: Atlas, tmp_path: Path) -> None:
    training = replace(loader, model=lambda: loader.model().train())
    found = survey(corpus, tmp_path / "a.atlas", training, length=64, shards=1)
    assert_alike(found, whole)


def test_the_order_of_shards_changes_nothing(corpus: Path, loader: Loader) -> None:
    model, tokenizer = loader.model(), loader.tokenizer()
    surveyor = Surveyor(model, tokenizer, Settings(length=64), batch_size=4)
    parts: list[bytes] = []
    for shard in into_shards(find_units(corpus), 5):
        windows, tally = prepare(shard, tokenizer, Settings(length=64))
        tally.merge(surveyor.count(windows))
        parts.append(tally.to_bytes())
    first: dict[str, Any] | None = None
    for order in itertools.islice(itertools.permutations(parts), 0, None, 31):
        tally = Tally()
        for part in order:
            tally.merge(Tally.from_bytes(part))
        found = tables(tally)
        first = first or found
        assert found["examples"] == first["examples"]
        for name, rows in found.items():
            for row, expected in zip(rows, first[name], strict=True):
                assert row.keys() == expected.keys()
                for column, value in row.items():
                    close = value if not isinstance(value, float) else pytest.approx(value, 1e-12)
                    assert expected[column] == close, (name, column)


def test_a_survey_says_where_its_numbers_come_from(
    corpus: Path, loader: Loader, whole: Atlas
) -> None:
    about = whole.about
    assert (about.model, about.source) == (loader.name, corpus.name)
    assert (about.length, about.sample, about.seed, about.field) == (64, 1.0, 0, None)
    # Three books, five lines, five rows and the documents of two treebanks.
    treebanks = [(corpus / f"{name}.conllu").read_text("utf-8") for name in ("ewt", "gum")]
    assert about.documents == 13 + sum(text.count("# newdoc") for text in treebanks)
    assert about.documents_cut == 3
    assert len(about.modules) == about.layers == 2
    assert about.skipped == {}
    assert about.versions.keys() == {"python", "regard", "torch", "transformers"}
    names = {path.name for path in whole.path.iterdir()}
    assert names == {
        "atlas.json",
        "plan.json",
        "report.html",
        *(f"{name}.parquet" for name in atlas.tables.SCHEMA),
    }


def test_examples_are_what_heads_look_at(
    corpus: Path, loader: Loader, whole: Atlas, tmp_path: Path
) -> None:
    counts = whole.examples.groupby(["layer", "head"]).size()
    assert counts.between(1, 8).all()
    for row in whole.examples.itertuples():
        query = row.text[row.query_start : row.query_end]
        key = row.text[row.key_start : row.key_end]
        assert query.strip()
        assert key.strip()
        assert 0 < row.weight <= 1
        assert (corpus / row.document.partition("#")[0]).is_file()


def test_a_seed_draws_other_examples_and_other_repeats(
    corpus: Path, loader: Loader, whole: Atlas, tmp_path: Path
) -> None:
    other = survey(corpus / "some.jsonl", tmp_path / "b.atlas", loader, length=64, seed=1)
    same = survey(corpus / "some.jsonl", tmp_path / "c.atlas", loader, length=64)
    assert not other.examples.equals(same.examples)
    assert not other.heads.repeats_induction.equals(same.heads.repeats_induction)
    assert same.heads.repeats_induction.equals(whole.heads.repeats_induction)
    np.testing.assert_allclose(other.heads.entropy, same.heads.entropy, rtol=1e-12)


def test_a_sample_reads_a_share_of_documents(
    corpus: Path, loader: Loader, whole: Atlas, tmp_path: Path
) -> None:
    half = survey(corpus, tmp_path / "a.atlas", loader, length=64, sample=0.5, shards=3)
    assert 0 < half.about.documents < whole.about.documents
    assert half.about.sample == 0.5


def test_text_in_memory_is_surveyed(loader: Loader, tmp_path: Path) -> None:
    import fsspec

    memory: Any = fsspec.filesystem("memory")
    for number, text in enumerate(sentences(4)):
        memory.pipe(f"/surveyed/{number}.txt", text.encode())
        (tmp_path / f"{number}.txt").write_bytes(text.encode())
    try:
        found = survey("memory://surveyed/*.txt", tmp_path / "a.atlas", loader)
    finally:
        memory.rm("/surveyed", recursive=True)
    local = survey(f"file://{tmp_path}/*.txt", tmp_path / "b.atlas", loader)
    np.testing.assert_allclose(found.heads.entropy, local.heads.entropy, rtol=1e-12)
    assert found.about.documents == 4
    assert list(found.examples.document) == list(local.examples.document)


def test_a_survey_may_be_written_into_its_own_source(loader: Loader, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(sentences(1)[0], encoding="utf-8")
    first = survey(tmp_path, tmp_path / "a.atlas", loader)
    assert first.about.documents == 1
    again = survey(tmp_path, tmp_path / "a.atlas", loader)
    assert again.about == first.about


def test_a_model_is_named_or_loaded_as_one_likes(tmp_path: Path) -> None:
    folder = small_model(tmp_path / "model")
    (tmp_path / "a.txt").write_text(sentences(1)[0], encoding="utf-8")
    by_name = survey(tmp_path / "a.txt", tmp_path / "1.atlas", str(folder))
    own = Loader(
        "my own",
        lambda: transformers.AutoModel.from_pretrained(folder).eval(),
        lambda: transformers.AutoTokenizer.from_pretrained(folder),
    )
    by_loader = survey(tmp_path / "a.txt", tmp_path / "2.atlas", own)
    assert (by_name.about.model, by_loader.about.model) == ("model", "my own")
    # In float32.
    np.testing.assert_allclose(by_name.heads.entropy, by_loader.heads.entropy, rtol=1e-5)


def test_windows_are_as_long_as_the_tokenizer_says(loader: Loader, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(book(50_000, 4_000), encoding="utf-8")
    assert survey(tmp_path / "a.txt", tmp_path / "a.atlas", loader).about.length == 512

    def shorter() -> Any:
        tokenizer = loader.tokenizer()
        tokenizer.model_max_length = 40
        return tokenizer

    short = replace(loader, tokenizer=shorter)
    assert survey(tmp_path / "a.txt", tmp_path / "b.atlas", short).about.length == 40
    with pytest.raises(ValueError, match=r"length must be at most 40, .* got 41"):
        survey(tmp_path / "a.txt", tmp_path / "c.atlas", short, length=41)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sample": 0.0}, "sample must be above 0 and at most 1, got 0.0"),
        ({"sample": 1.5}, "sample must be above 0 and at most 1, got 1.5"),
        ({"workers": 0}, "workers must be at least 1, got 0"),
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"shards": 0}, "shards must be at least 1, got 0"),
        ({"length": 7}, "length must be at least 8 tokens, got 7"),
    ],
)
def test_wrong_arguments_are_refused(
    corpus: Path, loader: Loader, tmp_path: Path, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        survey(corpus, tmp_path / "a.atlas", loader, **arguments)
    assert not (tmp_path / "a.atlas").exists()


@pytest.mark.slow
def test_how_the_work_is_cut_changes_nothing_of_a_real_model(tmp_path: Path) -> None:
    corpus = mixed_corpus(tmp_path / "corpus")
    loader = exact(minilm())
    one, five = (
        survey(corpus, tmp_path / f"{shards}.atlas", loader, shards=shards, batch_size=batch_size)
        for shards, batch_size in ((1, 32), (5, 3))
    )
    assert_alike(five, one)


@pytest.mark.slow
def test_known_induction_heads_are_found(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(sentences(1)[0], encoding="utf-8")
    found = survey(tmp_path / "a.txt", tmp_path / "a.atlas", str(smollm2()))
    heads = found.heads.set_index(["layer", "head"])
    strongest = heads.repeats_induction.sort_values(ascending=False)
    # Where others found them by hand, though not on the same tokens.
    assert list(strongest.index[:2]) == [(18, 6), (17, 3)]
    assert set(strongest.index[2:5]) >= {(17, 4), (18, 7)}
    assert strongest[18, 6] == pytest.approx(0.90, abs=0.02)
    assert "induction" in heads.loc[(18, 6), "labels"]
    # And on the same tokens, in matrices that are written down.
    model = transformers.AutoModel.from_pretrained(smollm2(), attn_implementation="eager").eval()
    windows = list(repeated_windows(transformers.AutoTokenizer.from_pretrained(smollm2()), 512, 0))
    expected = np.zeros((30, 9))
    for window in windows:
        half = len(window.ids) // 2
        with torch.no_grad():
            layers = model(torch.tensor([window.ids]), output_attentions=True).attentions
        for layer, weights in enumerate(layers):
            for row in range(half, 2 * half):
                expected[layer] += weights[0, :, row, row - half + 1].numpy() / half / len(windows)
    found_there = heads.repeats_induction.to_numpy().reshape(30, 9)
    np.testing.assert_allclose(found_there, expected, rtol=1e-3, atol=1e-5)


def test_effects_are_those_of_each_window(tmp_path: Path) -> None:
    folder = small_model(tmp_path / "decoder", "decoder")
    loader = pretrained(str(folder), dtype=torch.float64, generates=True)
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for number, text in enumerate(("A whale is no fish.", "Call me Ishmael. Some years ago")):
        (corpus / f"{number}.txt").write_text(text, encoding="utf-8")
    found = survey(corpus, tmp_path / "a.atlas", loader, effects=True)
    model: Any = loader.model()
    windows, _ = prepare(*into_shards(find_units(corpus), 1), loader.tokenizer(), Settings(512))
    total = torch.zeros(2, 3, dtype=torch.float64)
    for window in windows:
        ids = torch.tensor([window.ids])

        def run(ids: torch.Tensor = ids) -> torch.Tensor:
            return -model(input_ids=ids, labels=ids).loss

        total += regard.interventions.heads(model, run).effects.abs()
    assert len(windows) == 2
    effect = found.heads["effect"].to_numpy().reshape(2, 3)
    np.testing.assert_allclose(effect, (total / 2).numpy(), rtol=1e-6)
    assert found.about.effects


def test_effects_need_a_decoder_with_its_head(corpus: Path, loader: Loader, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="effects need a decoder, and BertModel is none"):
        survey(corpus, tmp_path / "a.atlas", loader, length=64, effects=True)
    headless = exact(small_model(tmp_path / "decoder", "decoder"))
    with pytest.raises(ValueError, match="a language-model head, and GPT2Model has none"):
        survey(corpus, tmp_path / "b.atlas", headless, length=64, effects=True)
