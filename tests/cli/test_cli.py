"""The command line as a user has it: a process of its own, real models, what is printed where."""

import io
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    BertConfig,
    BertModel,
    BertTokenizerFast,
    LlamaConfig,
    LlamaModel,
    MarianConfig,
    MarianMTModel,
    ViTConfig,
    ViTModel,
)
from typer.testing import CliRunner

from materials import minilm
from regard.cli.app import app
from regard.cli.choosing import Chosen, asked_token
from regard.cli.reading import read_input
from regard.cli.running import watched
from regard.matrix.lazy_matrix import LazyMatrix
from tests.small import BART, GROUPED, HIDDEN, SIZES

pytestmark = pytest.mark.usefixtures("one_thread", "quiet_transformers")

ROOT = Path(__file__).parents[2]
SENTENCE = "The animal didn't cross the street because it was too tired"
WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "an", "apple", "a", "day", "is", "it", ".")
VOCABULARY = {
    "vocab_size": len(WORDS),
    "pad_token_id": WORDS.index("[PAD]"),
    "bos_token_id": WORDS.index("[CLS]"),
    "eos_token_id": WORDS.index("[SEP]"),
    "max_position_embeddings": 16,
}


def regard(*arguments: object, code: int = 0, stdin: str | None = None) -> tuple[str, str]:
    """Run the command in this process; return what it printed to stdout and stderr."""
    done = CliRunner().invoke(app, [str(one) for one in arguments], input=stdin)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == code, done.stderr
    return done.stdout, done.stderr


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a small encoder with random weights."""
    folder = tmp_path_factory.mktemp("models") / "bert"
    torch.manual_seed(0)
    config = BertConfig(**{**SIZES, **VOCABULARY, "num_attention_heads": 2})
    BertModel(config).save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(WORDS), encoding="utf-8")
    BertTokenizerFast(vocab=str(folder / "vocab.txt")).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory, bert: Path) -> Path:
    """Return the folder of a small decoder with random weights."""
    folder = tmp_path_factory.mktemp("models") / "decoder"
    torch.manual_seed(0)
    LlamaModel(LlamaConfig(**{**GROUPED, **VOCABULARY})).save_pretrained(folder)
    BertTokenizerFast.from_pretrained(bert).save_pretrained(folder)
    return folder


def saved_vit(folder: Path, image_size: int | tuple[int, int]) -> Path:
    """Save a small model of images with random weights; return its folder."""
    torch.manual_seed(0)
    config = ViTConfig(**HIDDEN, image_size=image_size, patch_size=8)
    ViTModel(config, add_pooling_layer=False).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def vit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved_vit(tmp_path_factory.mktemp("models") / "vit", image_size=32)


@pytest.fixture(scope="module")
def marian(tmp_path_factory: pytest.TempPathFactory, bert: Path) -> Path:
    """Return the folder of a small encoder–decoder with random weights."""
    folder = tmp_path_factory.mktemp("models") / "marian"
    torch.manual_seed(0)
    config = MarianConfig(**{**BART, **VOCABULARY}, forced_eos_token_id=None)
    MarianMTModel(config).save_pretrained(folder)
    BertTokenizerFast.from_pretrained(bert).save_pretrained(folder)
    return folder


def test_look_prints_heads(bert: Path) -> None:
    out, error = regard("look", "an apple a day", "-m", bert, "-t", "apple")
    assert "Where “apple” looks in bert (token 2 of 6)" in out
    assert len(re.findall(r"^ *[01]\.[01]  ", out, re.MULTILINE)) == 4
    assert error == ""


def test_look_prints_where_each_token_stands(bert: Path) -> None:
    out, _ = regard("look", "a day is a day", "-m", bert, "-t", "is")
    assert re.search(r"\bday@2 0\.\d\d", out)
    assert re.search(r"\bday@5 0\.\d\d", out)


@pytest.mark.parametrize("command", ["look", "explain"])
def test_which_of_several_tokens_looks(bert: Path, command: str) -> None:
    text = "a day is a day"
    out, _ = regard(command, text, "-m", bert, "-t", "day")
    why = "the first of 2 tokens “day” (@2, @5); for another, pass --token @5"
    assert f"Token 2: {why}" in out
    for wanted in ("@5", "5", "day@5", "-2"):
        out, _ = regard(command, text, "-m", bert, f"--token={wanted}")
        assert why not in out
        assert "token 5" in out.lower()
    _, error = regard(command, text, "-m", bert, "-t", "apple@5", code=1)
    assert error == "error: --token apple@5: token 5 is 'day'\n"


def test_tokens_that_are_numbers() -> None:
    tokens = ["the", " 2", " 1", " 2", " x@1"]
    found = asked_token("1", tokens)
    assert found == Chosen(2, "the token “1”; for position 1, pass --token @1")
    assert asked_token("@1", tokens) == Chosen(1)
    assert asked_token("2", tokens).why.startswith("the first of 2 tokens “2” (@1, @3)")
    assert asked_token("0", tokens) == Chosen(0)
    assert asked_token("x@1", tokens) == Chosen(4)
    for wanted, message in (
        ("@9", "--token must be a position from 0 to 4, got 9"),
        ("the@2", "--token the@2: token 2 is '1'"),
        ("y@z", "--token must be one of the, 2, 1, 2, x@1 or a position, got 'y@z'"),
    ):
        with pytest.raises(ValueError, match=re.escape(message)):
            asked_token(wanted, tokens)


def test_a_decoder_is_looked_at_where_it_goes_on(
    decoder: Path, marian: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nothing of any other row is computed for it."""
    monkeypatch.delattr(LazyMatrix, "summarize")
    why = "the last token, which predicts the next; for another, pass --token TEXT or @NUMBER"
    for command in ("look", "explain"):
        out, _ = regard(command, "a day is a day", "-m", decoder)
        assert f"Token 6: {why}" in out
    found = json.loads(regard("look", "a day is a day", "-m", decoder, "--json")[0])
    assert (found["position"], found["chosen"]) == (6, why)
    out, _ = regard("look", "an apple", "-m", marian, "--target", "it is a day")
    assert f"Token 5: {why}" in out


def test_a_layer_that_only_the_encoder_has(
    bert: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("models") / "deep"
    sizes = {**BART, **VOCABULARY, "encoder_layers": 3, "decoder_layers": 1}
    MarianMTModel(MarianConfig(**sizes, forced_eos_token_id=None)).save_pretrained(folder)
    BertTokenizerFast.from_pretrained(bert).save_pretrained(folder)
    given = ("explain", "an apple a day is it", "-m", folder, "--target", "it", "--layer", 2)
    out, _ = regard(*given)
    assert re.search(r"Token \d: of all words it looks hardest at another word", out)


def test_an_encoder_is_looked_at_where_it_tells_most(
    bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "an apple a day is it"
    with monkeypatch.context() as patched:
        patched.delattr(LazyMatrix, "summarize")
        found = json.loads(regard("look", text, "-m", bert, "--json")[0])
    said = re.fullmatch(
        r"of all words it looks hardest at another word \((\w+)@(\d), (0\.\d\d) in (\d)\.(\d)\); "
        "for another, pass --token TEXT or @NUMBER",
        found["chosen"],
    )
    assert said is not None
    word, key, weight, layer, head = said.groups()
    (there,) = (
        one for one in found["heads"] if (one["layer"], one["head"]) == (int(layer), int(head))
    )
    (at,) = (one for one in there["keys"] if one["position"] == int(key))
    assert at["token"].strip() == word
    assert f"{at['weight']:.2f}" == weight
    # No other word looks harder: neither at itself, nor beside it, nor at the ends.
    _, _, run = watched(text, str(bert))
    near = (torch.arange(8)[:, None] - torch.arange(8)).abs() <= 2
    rows = torch.stack([call.matrix[0].dense() for call in run.seen]).masked_fill(near, 0.0)
    assert rows[..., 1:-1, 1:-1].max().item() == pytest.approx(at["weight"])
    # A page of the same text begins with the same token, in the head where it does so.
    regard("look", text, "-m", bert, "--save", tmp_path / "it.html")
    page = (tmp_path / "it.html").read_text(encoding="utf-8")
    first = {"layer": int(layer), "head": int(head), "token": found["position"]}
    begins = json.dumps([first]).replace(" ", "").removesuffix("}]") + ',"why":'
    assert begins in page.replace(" ", "")


def test_look_prints_json(bert: Path) -> None:
    out, _ = regard("look", "-", "-m", bert, "-t", 2, "--json", stdin="an apple a day")
    found = json.loads(out)
    assert found["token"] == " apple"
    assert {(one["layer"], one["head"]) for one in found["heads"]} == {
        (layer, head) for layer in (0, 1) for head in (0, 1)
    }
    for one in found["heads"]:
        assert sum(key["weight"] for key in one["keys"]) == pytest.approx(1.0, abs=1e-5)


def test_heads_are_ranked_by_their_looks_at_distant_words(bert: Path) -> None:
    """Neither at the ends of the text, nor at the word itself or beside it."""
    text = "an apple a day is it"
    found = json.loads(regard("look", text, "-m", bert, "-t", "apple", "--json")[0])
    assert found["position"] == 2
    _, _, run = watched(text, str(bert))
    rows = torch.stack([call.matrix[0].dense()[:, 2] for call in run.seen])
    # Of [CLS], six words and [SEP], two words are farther away than two tokens.
    expected = rows[..., [5, 6]].amax(dim=-1)
    strengths = [one["strength"] for one in found["heads"]]
    there = [expected[one["layer"], one["head"]].item() for one in found["heads"]]
    assert strengths == pytest.approx(there, abs=1e-5)
    assert strengths == sorted(strengths, reverse=True)
    # By all keys, the order would be another one.
    strongest = rows.amax(dim=-1)
    others = [strongest[one["layer"], one["head"]].item() for one in found["heads"]]
    assert others != sorted(others, reverse=True)


def test_look_saves_a_page_and_figures(bert: Path, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("an apple a day is it.", encoding="utf-8")
    page, heads, head = (tmp_path / name for name in ("it.html", "heads.png", "head.svg"))
    out, error = regard("look", text, "-m", bert, "--save", page)
    assert out == ""
    assert str(page) in error
    assert "an apple a day is it." in page.read_text(encoding="utf-8")
    regard("look", text, "-m", bert, "--save", heads)
    assert heads.read_bytes().startswith(b"\x89PNG")
    regard("look", text, "-m", bert, "-l", 1, "--head", 1, "--save", head)
    assert ">apple<" in head.read_text(encoding="utf-8")


def test_look_at_an_image(vit: Path, tmp_path: Path) -> None:
    from PIL import Image

    image = tmp_path / "a.png"
    Image.new("RGB", (40, 40), "red").save(image)
    out, _ = regard("look", image, "-m", vit)
    assert "looks in vit" in out
    regard("look", image, "-m", vit, "--save", tmp_path / "over.png")
    assert (tmp_path / "over.png").read_bytes().startswith(b"\x89PNG")
    _, error = regard("look", "a text", "-m", vit, code=1)
    assert error == "error: vit takes an image file, got 'a text'\n"


def test_heads_are_sorted(bert: Path) -> None:
    out, _ = regard("heads", "an apple a day", "-m", bert, "--sort", "first", "--json")
    firsts = [row["first"] for row in json.loads(out)]
    assert len(firsts) == 4
    assert firsts == sorted(firsts, reverse=True)
    given = ("heads", "an apple a day", "-m", bert, "--sort", "first", "--ascending")
    assert [row["first"] for row in json.loads(regard(*given, "--json")[0])] == sorted(firsts)
    table, _ = regard("heads", "an apple a day", "-m", bert, "--top", 3)
    assert len(table.strip().splitlines()) == 4


def test_explain_prints_the_worked_example(tmp_path: Path) -> None:
    out, _ = regard("explain")
    row = next(line for line in out.splitlines() if line.startswith("tired"))
    assert re.findall(r" (\d\.\d{3}) ", row) == ["1.220", "0.704", "0.180"]
    assert "introduction" not in out
    found = json.loads(regard("explain", "--no-scaled", "--json")[0])
    weights = {row["token"]: round(row["weight"], 3) for row in found["rows"]}
    assert weights["tired"] == 0.229
    assert weights["animal"] == 0.146
    regard("explain", "--save", tmp_path / "steps.svg")
    assert ">tired<" in (tmp_path / "steps.svg").read_text(encoding="utf-8")
    regard("explain", "--save", tmp_path / "steps.html")
    assert '"explanation":{"token":"it"' in (tmp_path / "steps.html").read_text(encoding="utf-8")


def page_facts(path: Path) -> Any:
    (found,) = re.findall(r'id="regard-page">(.*?)</script>', path.read_text(encoding="utf-8"))
    return json.loads(found)


def test_explain_saves_a_page_of_the_head_it_explains(
    bert: Path, marian: Path, tmp_path: Path
) -> None:
    path = tmp_path / "e.html"
    regard("explain", "an apple a day", "-m", bert, "-t", "a", "-l", 1, "--head", 1, "--save", path)
    found = page_facts(path)
    (layer,) = found["layers"]
    assert (layer["title"], layer["heads"], layer["looks"]) == ("layer 1", [1], "self")
    assert [text["name"] for text in found["texts"]] == ["token 3", "text"]
    assert found["texts"][0]["positions"] == [3]
    assert found["about"] == "bert"
    given = ("explain", "an apple a day", "-m", marian, "--target", "it is", "-t", "it", "-l", 1)
    regard(*given, "--head", 2, "--save", path)
    found = page_facts(path)
    (layer,) = found["layers"]
    assert (layer["title"], layer["heads"], layer["looks"]) == ("cross layer 1", [2], "cross")
    assert [text["name"] for text in found["texts"]] == ["source", "target token 2"]
    regard("explain", "--save", path)
    found = page_facts(path)
    assert found["layers"][0]["title"] == "attention"
    assert [text["name"] for text in found["texts"]] == ["token 5", "text"]


def test_explain_a_real_model(bert: Path) -> None:
    out, _ = regard("explain", "an apple a day", "-m", bert, "-t", "apple", "-l", 1, "--head", 1)
    assert "The query of “apple”" in out
    assert "head 1" in out


def test_doctor_says_what_works() -> None:
    found = json.loads(regard("doctor", "--json")[0])
    assert found["versions"]["torch"] == torch.__version__
    assert found["versions"]["zarr"] == metadata.version("zarr")
    for backend in ("reference", "fused", "blocks"):
        assert found["backends"][backend].startswith("works on")


def test_doctor_lists_every_package_of_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(package: str) -> str:
        raise metadata.PackageNotFoundError(package)

    monkeypatch.setattr(metadata, "version", missing)
    found = json.loads(regard("doctor", "--json")[0])["versions"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    for_users = set(re.findall(r"\w+", extras["all"][0])) - {"regard"} | {"progress"}
    for extra in for_users:
        for requirement in extras[extra]:
            package = re.match(r"[\w-]+", requirement)[0]  # type: ignore[index]
            if package != "regard":
                assert found[package].startswith("not installed: pip install ")
    assert found["zarr"] == 'not installed: pip install "regard[map]"'
    assert found["pandas"] == 'not installed: pip install "regard[frame]"'
    assert found["numpy"] == "not installed: pip install regard"
    assert found["gguf"] == "not installed: pip install gguf"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("look", "hi", "-m", "/nowhere"), "there is no folder /nowhere"),
        (
            ("look", "hi", "-m", "{bert}", "--save", "a.txt"),
            "--save must end with .html, .svg, .pdf, .png",
        ),
        (
            ("look", "an apple", "-m", "{bert}", "-t", "pear"),
            "or a position, got 'pear'",
        ),
        (("look", "an apple", "-m", "{bert}", "-t", "9"), "--token must be a position from 0 to 3"),
        (("look", "an apple", "-m", "{bert}", "-l", "7"), "--layer must be from 0 to 1, got 7"),
        (("look", "an apple", "-m", "{bert}", "--head", "7"), "--head must be from 0 to 1, got 7"),
        (
            ("look", "a " * 20, "-m", "{bert}"),
            "bert takes at most 16 tokens, got 22: shorten it, or use `regard record --tokens`",
        ),
        (("heads", "hi", "-m", "{bert}", "--sort", "size"), "--sort must be one of layer, entropy"),
        (("explain", "a text"), "add --model"),
        (("look", "  ", "-m", "{bert}"), "the text is empty"),
        (("look", "nochapter.txt", "-m", "{bert}"), "there is no file nochapter.txt"),
        (("look", "{bert}", "-m", "{bert}"), "is a folder: pass a text or a file"),
        (("look", "an apple", "-m", "{bert}", "--open"), "--open needs a file: add --save"),
        (("look", "an apple", "-m", "{bert}", "--save", "no/x.html"), "an existing folder no"),
        (("look", "an apple", "-m", "{bert}", "--device", "cuda:99"), "`regard doctor` lists"),
        (("explain", "-t", "because"), "has queries for The, animal"),
        (("look", "an apple", "-m", "{bert}", "--target", "it"), "bert takes text: leave it out"),
        (("heads", "an apple", "-m", "{bert}", "--target", "it"), "bert takes text: leave it out"),
        (
            ("explain", "an apple", "-m", "{bert}", "--target", "it"),
            "--target needs an encoder–decoder; bert takes text: leave it out",
        ),
        (("explain", "--target", "it"), "--target needs an encoder–decoder: add --model"),
        (
            ("look", "an apple", "-m", "{bert}", "--head", "1", "--save", "{bert}/a.html"),
            "a page shows all heads and tokens: leave --head out, or save a figure (.svg .pdf",
        ),
        (
            ("look", "an apple", "-m", "{bert}", "-t", "apple", "--save", "{bert}/a.HTML"),
            "a page shows all heads and tokens: leave --token out",
        ),
        (
            ("look", "an apple", "-m", "{bert}", "-t", "apple", "--save", "{bert}/a.svg"),
            "a figure of a text shows all tokens: leave out --token or --save",
        ),
    ],
)
def test_faults_are_one_line(arguments: tuple[str, ...], message: str, bert: Path) -> None:
    out, error = regard(*(one.format(bert=bert) for one in arguments), code=1)
    assert out == ""
    assert error.startswith("error: ")
    assert message in error
    assert error.count("\n") == 1


def copied(folder: Path, to: Path, *left_out: str) -> Path:
    """Copy a model, but for some of its files."""
    to.mkdir()
    for file in folder.iterdir():
        if file.name not in left_out:
            (to / file.name).write_bytes(file.read_bytes())
    return to


def test_models_that_are_not_whole(bert: Path, tmp_path: Path) -> None:
    wordless = copied(bert, tmp_path / "wordless", "tokenizer.json", "vocab.txt")
    assert "wordless has no tokenizer" in regard("look", "an apple", "-m", wordless, code=1)[1]
    cut = copied(bert, tmp_path / "cut")
    weights = (cut / "model.safetensors").read_bytes()
    (cut / "model.safetensors").write_bytes(weights[:100])
    assert "download may be incomplete" in regard("look", "an apple", "-m", cut, code=1)[1]
    # Weights of fewer layers than config.json has would be made up for the others.
    deeper = copied(bert, tmp_path / "deeper")
    config = (deeper / "config.json").read_text(encoding="utf-8")
    more = config.replace('"num_hidden_layers": 2', '"num_hidden_layers": 3')
    (deeper / "config.json").write_text(more, encoding="utf-8")
    assert "don't fit its config.json" in regard("look", "an apple", "-m", deeper, code=1)[1]
    broken = copied(bert, tmp_path / "broken")
    (broken / "config.json").write_text("{", encoding="utf-8")
    assert f"can't read {broken}/config.json" in regard("look", "an apple", "-m", broken, code=1)[1]


def test_files_that_are_no_text(bert: Path, tmp_path: Path) -> None:
    file = tmp_path / "latin.txt"
    file.write_bytes("naïve".encode("latin-1"))
    assert "must be UTF-8 text" in regard("look", file, "-m", bert, code=1)[1]


def test_the_image_is_what_the_model_saw(tmp_path: Path) -> None:
    """With twice as many columns as rows, whose number nobody could guess."""
    from PIL import Image

    wide = saved_vit(tmp_path / "wide", image_size=(16, 32))
    Image.new("RGB", (90, 40), "red").save(tmp_path / "a.png")
    _, _, found = watched(str(tmp_path / "a.png"), str(wide))
    assert found.patches == (2, 4)
    assert found.image.shape == (16, 32, 3)
    assert len(found.tokens) == 9


def test_pickled_weights_are_not_read_unasked(bert: Path, tmp_path: Path) -> None:
    folder = tmp_path / "pickled"
    folder.mkdir()
    for name in ("config.json", "vocab.txt", "tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((bert / name).read_bytes())
    torch.save(BertModel.from_pretrained(bert).state_dict(), folder / "pytorch_model.bin")
    _, error = regard("look", "an apple", "-m", folder, code=1)
    assert "are pickled (pytorch_model.bin)" in error
    assert "--allow-pickle" in error
    out, _ = regard("look", "an apple", "-m", folder, "--allow-pickle")
    assert "looks in pickled" in out


@pytest.mark.slow
def test_a_real_encoder_knows_what_it_means() -> None:
    """Heads of MiniLM look from "it" at "animal" and at "tired"."""
    out, _ = regard("look", SENTENCE, "-m", minilm(), "-t", "it", "--json")
    strongest = {
        max(one["keys"], key=lambda key: key["weight"])["token"]
        for one in json.loads(out)["heads"][:4]
    }
    assert {" animal", " tired"} <= strongest


def test_an_encoder_decoder(tmp_path: Path, marian: Path) -> None:
    arguments = ("look", "an apple a day", "-m", marian, "--target", "it is a day")
    found = json.loads(regard(*arguments, "--json")[0])
    assert {one["looks"] for one in found["heads"]} == {"self", "cross"}
    assert len(found["tokens"]) == 6
    regard(*arguments, "--save", tmp_path / "it.html")
    assert '"name":"source"' in (tmp_path / "it.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(("layer", "head"), [(0, 0), (1, 3)])
def test_explain_an_encoder_decoder(marian: Path, layer: int, head: int) -> None:
    """As `look` draws it: what a word of the target looks at in the source."""
    given = ("explain", "an apple a day", "-m", marian, "--target", "it is a day", "-t", "it")
    found = json.loads(regard(*given, "--layer", layer, "--head", head, "--json")[0])
    source = ["[CLS]", "an", "apple", "a", "day", "[SEP]"]
    said = ["[PAD]", "[CLS]", "it", "is", "a", "day"]
    ids = [torch.tensor([[WORDS.index(word) for word in words]]) for words in (source, said)]
    model = MarianMTModel.from_pretrained(marian, attn_implementation="eager").eval()
    with torch.no_grad():
        outputs = model(input_ids=ids[0], decoder_input_ids=ids[1], output_attentions=True)
    expected = outputs.cross_attentions[layer][0, head, said.index("it")].tolist()
    assert found["token"] == "it"
    assert [row["token"] for row in found["rows"]] == source
    assert [row["weight"] for row in found["rows"]] == pytest.approx(expected, abs=1e-5)
    assert f"model.decoder.layers.{layer}.encoder_attn, head {head}" in found["notes"]


@pytest.mark.slow
def test_a_pipe_gets_nothing_but_data() -> None:
    """In a process of its own, from the words that a user types."""
    command = Path(sys.executable).with_name("regard")
    done = subprocess.run(
        [command, "look", SENTENCE, "-m", minilm(), "-t", "it", "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout)["token"] == " it"
    assert done.stderr == ""


def test_what_is_missing_is_named(run_python: Callable[..., str]) -> None:
    said = run_python(
        "-c",
        "import sys\nsys.modules['typer'] = None\nimport regard.cli\n"
        "try:\n    regard.cli.main()\nexcept SystemExit as end:\n    print(end)",
    )
    assert said == 'the command needs typer: pip install "regard[cli]"\n'


def test_a_text_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sparse file takes nothing of the disk, and would take all of the memory."""
    path = tmp_path / "sparse.txt"
    path.touch()
    os.truncate(path, 2**25)
    assert len(str(read_input(str(path)))) == 2**25
    os.truncate(path, 2**25 + 1)
    with pytest.raises(ValueError, match=r"sparse\.txt must have at most 33,554,432 bytes"):
        read_input(str(path))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"x" * (2**25 + 1))))
    with pytest.raises(ValueError, match="stdin must have at most 33,554,432 bytes"):
        read_input("-")
