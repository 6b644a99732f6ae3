"""Small models and small corpora to survey, and atlases compared."""

import json
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import torch
import transformers

from materials import minilm, moby_dick, treebank
from regard.atlas import Atlas, Loader, pretrained
from regard.atlas.tables import SCHEMA

SIZES = {
    "vocab_size": 30522,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 20,
    "max_position_embeddings": 512,
    # Large weights, so that attention is far from uniform.
    "initializer_range": 0.6,
    "pad_token_id": 0,
}


def small_model(folder: Path, kind: str = "encoder") -> Path:
    """Write a small model with random weights and the tokenizer of MiniLM; return its folder."""
    torch.manual_seed(5)
    if kind == "encoder":
        model: Any = transformers.BertModel(transformers.BertConfig(**SIZES))
    elif kind == "decoder":
        sizes = {"n_embd": 24, "n_layer": 2, "n_head": 3, "n_inner": 20, "n_positions": 512}
        names = ("vocab_size", "initializer_range")
        sizes |= {name: SIZES[name] for name in names} | {"bos_token_id": 101, "eos_token_id": 102}
        model = transformers.GPT2Model(transformers.GPT2Config(**sizes))
    else:
        # Two heads of keys for four of queries.
        sizes = SIZES | {"num_attention_heads": 4, "num_key_value_heads": 2}
        model = transformers.LlamaModel(transformers.LlamaConfig(**sizes))
    model.save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(minilm() / name, folder)
    return folder


def exact(folder: Path) -> Loader:
    """Return how to load a model in float64."""
    return pretrained(str(folder), dtype=torch.float64)


def held(loader: Loader, out: Path, shards: int) -> Loader:
    """Return a loader whose model counts no more once so many shards are done, until it may.

    It may as soon as there is a file `go` beside them.
    """

    def model() -> Any:
        def wait(*_: object) -> None:
            while len([*out.glob("shards/*.npz")]) >= shards and not (out / "go").exists():
                time.sleep(0.01)

        made = loader.model()
        made.register_forward_pre_hook(wait)
        return made

    return replace(loader, model=model)


def sentences(count: int) -> list[str]:
    """Return real sentences, of the web."""
    with (treebank() / "en_ewt-ud-dev.conllu").open(encoding="utf-8") as lines:
        found = [line[9:].strip() for line in lines if line.startswith("# text = ")]
    return found[:count]


def book(start: int, size: int) -> str:
    """Return a piece of a real book."""
    return moby_dick().read_text(encoding="utf-8")[start : start + size]


def annotated(part: str, count: int) -> str:
    """Return some real sentences with their annotations, documents and all."""
    text = (treebank() / f"{part}.conllu").read_text(encoding="utf-8")
    return "\n\n".join(text.split("\n\n")[:count]) + "\n\n"


def mixed_corpus(folder: Path) -> Path:
    """Write a corpus of all kinds of files."""
    import pyarrow
    import pyarrow.parquet

    texts = sentences(20)
    (folder / "books").mkdir(parents=True)
    for number in range(3):
        text = book(30_000 + 9_000 * number, 300 + 150 * number)
        (folder / "books" / f"{number}.txt").write_text(text, encoding="utf-8")
    lines = "".join(json.dumps({"text": text}) + "\n" for text in texts[:5])
    (folder / "some.jsonl").write_text(lines, encoding="utf-8")
    table = pyarrow.table({"number": range(5), "content": texts[8:13]})
    pyarrow.parquet.write_table(table, folder / "some.parquet", row_group_size=2)
    (folder / "ewt.conllu").write_text(annotated("en_ewt-ud-dev", 4), encoding="utf-8")
    (folder / "gum.conllu").write_text(annotated("en_gum-ud-dev", 5), encoding="utf-8")
    return folder


def many_files(folder: Path, count: int, size: int = 600) -> Path:
    """Write a corpus of small files, each of which can be a shard."""
    folder.mkdir()
    for number in range(count):
        text = book(40_000 + 3_000 * number, size)
        (folder / f"{number:03d}.txt").write_text(text, encoding="utf-8")
    return folder


def assert_alike(found: Atlas, expected: Atlas, tolerance: float = 1e-9) -> None:
    """Check that all tables have the same rows, with the same numbers but for rounding."""
    for name in SCHEMA:
        assert_same_rows(found.frame(name), expected.frame(name), name, tolerance)
    changing = ("date", "versions")
    about, other = (
        {key: value for key, value in vars(atlas.about).items() if key not in changing}
        for atlas in (found, expected)
    )
    assert about == other


def assert_same_rows(
    found: pandas.DataFrame, expected: pandas.DataFrame, name: str, tolerance: float = 1e-9
) -> None:
    assert list(found.columns) == list(expected.columns)
    assert len(found) == len(expected), name
    for column in expected.columns:
        values, wanted = found[column].to_numpy(), expected[column].to_numpy()
        about = f"{name}.{column}"
        if wanted.dtype.kind == "f":
            np.testing.assert_allclose(
                values, wanted, rtol=tolerance, atol=tolerance, err_msg=about
            )
        else:
            assert [*map(_plain, values)] == [*map(_plain, wanted)], about


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value


def dense(folder: Path, windows: Sequence[Sequence[int]]) -> Iterator[np.ndarray]:
    """Yield the weights of each window, [layers, heads, tokens, tokens], from padded batches.

    Windows of different lengths share a batch, as those of a survey never do, and attention writes
    its matrices down.
    """
    model = transformers.AutoModel.from_pretrained(
        folder, dtype=torch.float64, attn_implementation="eager"
    ).eval()
    for start in range(0, len(windows), 8):
        some = [torch.tensor(ids) for ids in windows[start : start + 8]]
        ids = torch.nn.utils.rnn.pad_sequence(some, batch_first=True)
        lengths = torch.tensor([len(one) for one in some])
        mask = (torch.arange(ids.shape[1]) < lengths[:, None]).long()
        with torch.no_grad():
            layers = model(input_ids=ids, attention_mask=mask, output_attentions=True).attentions
        together = torch.stack(layers, dim=1).numpy()
        for weights, length in zip(together, lengths.tolist(), strict=True):
            yield weights[:, :, :length, :length]
