"""The page of errors shows what is printed: each error is provoked, and its message compared."""

import json
import re
import socket
import sys
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from typer.testing import CliRunner

import regard
from regard.atlas import Loader, survey
from regard.cli.app import app
from regard.matrix import Entropy
from regard.positions import Learned
from regard.server import publish
from regard.server.serve import listening

# As users run it, who have no shape checks; in a folder of its own, for the names that it prints.
pytestmark = pytest.mark.usefixtures("unchecked", "inside_a_folder")

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "errors.md"
SECTION = re.compile(
    r"^### (?P<title>[^\n]*)\n\n``` \{ \.text \.error \}\n(?P<message>.*?)\n```$",
    re.MULTILINE | re.DOTALL,
)
X, THREE_HEADS = torch.zeros(1, 8, 16, 4), torch.zeros(1, 3, 16, 4)
TOKENS = [f"token{number}" for number in range(16)]


@pytest.fixture
def inside_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


class Kernel(nn.Module):
    """Attention, and nothing else."""

    def forward(self, x: Tensor, *, spoil: bool = False) -> Tensor:
        output = F.scaled_dot_product_attention(x, x, x)
        if spoil:
            x.zero_()
        return output


class Wrong(TorchFunctionMode):
    """Stands for a kernel that does something else than it is asked for."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = func(*args, **(kwargs or {}))
        return output + 1 if func is F.scaled_dot_product_attention else output


class Reader(nn.Module):
    """Attention of 4 queries to 7 keys, written by hand."""

    def forward(
        self, query: Tensor, *, gated: bool = False, squashed: bool = False, twice: bool = False
    ) -> Tensor:
        scores, value = query @ torch.ones(1, 2, 8, 7), torch.ones(1, 2, 7, 8)
        weights = (scores.sigmoid() if squashed else scores).softmax(dim=-1)
        output = (weights * 0.5 if gated else weights) @ value
        return output + weights @ value if twice else output


def _reader() -> tuple[nn.Sequential, Tensor]:
    return nn.Sequential(OrderedDict(reader=Reader())), torch.ones(1, 2, 4, 8)


def _model() -> nn.Module:
    return nn.Sequential(OrderedDict(embedding=nn.Identity(), attention=Kernel()))


def _recorded() -> Path:
    path = Path("book.regard")
    regard.save(regard.AttentionMatrix(X, X), path, tokens=TOKENS)
    return path


def heads() -> None:
    regard.attend(X, THREE_HEADS, THREE_HEADS)


def types() -> None:
    regard.attend(X, X.half(), X.half())


def mask() -> None:
    allowed: Any = torch.ones(16, 16, dtype=torch.bool).tril()
    regard.attend(X, X, X, pattern=allowed)


def joined_with_and() -> None:
    _ = regard.causal() and regard.window(before=8)


def document_ids() -> None:
    regard.attend(X, X, X, pattern=regard.documents([0, 0, 1, 1]))


def backend() -> None:
    regard.attend(X, X, X, pattern=regard.window(before=4), dropout=0.1, backend="blocks")


def position_table() -> None:
    Learned(512, 16)(torch.arange(600))


def dense() -> None:
    long = torch.zeros(1, 8, 1, 64).expand(1, 8, 32_768, 64)
    regard.AttentionMatrix(long, long).dense()


def parentheses() -> None:
    reduction: Any = Entropy
    regard.AttentionMatrix(X, X).summarize(reduction)


def nothing_seen() -> None:
    with regard.watch(Kernel()):
        pass


def no_such_module() -> None:
    layer = nn.TransformerEncoderLayer(16, nhead=4, batch_first=True)
    with regard.watch(nn.TransformerEncoder(layer, 2), where="encoder.layers.*"):
        pass


def unknown_positions() -> None:
    model, query = _reader()
    with regard.knock_out(model, regard.pairs(queries=[2], keys=[1])):
        model(query)


def altered_twice() -> None:
    model, query = _reader()
    with regard.ablate(model, [("reader", 0)]):
        model[0](query, twice=True)


def unknown_mask() -> None:
    model, query = _reader()
    with regard.watch(model) as seen:
        model[0](query, squashed=True)
    seen[0].matrix.received()


def changed_weights() -> None:
    model, query = _reader()
    with regard.watch(model, effects=True) as seen:
        model[0](query.requires_grad_(), gated=True).sum().backward()
    _ = seen[0].effects


def check_failed() -> None:
    model = _model()
    with Wrong(), regard.watch(model) as seen:
        model(torch.ones_like(X))
    seen.verify()


def written_over() -> None:
    model = Kernel()
    with regard.watch(model) as seen:
        model(X.clone(), spoil=True)
    _ = seen[0].matrix


def let_go() -> None:
    model = _model()
    with regard.watch(model, keep=[Entropy()]) as seen:
        model(X)
    _ = seen[0].matrix


def tokens_missing() -> None:
    model = _model()
    with regard.watch(model) as seen:
        model(X)
    regard.page(seen, TOKENS[:14])


def package_missing() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "pandas", None)
        regard.AttentionMatrix(X, X).entropy().frame()


def no_recording() -> None:
    regard.open("book.regard")


def interrupted() -> None:
    _recorded().rename("book.regard.partial")
    regard.open("book.regard")


def chunk_lost() -> None:
    path = _recorded()
    for chunk in (path / "calls" / "0000" / "query" / "c").rglob("*"):
        chunk.unlink() if chunk.is_file() else None
    _ = regard.open(path)[0].matrix[0, 0].dense()


def later_format() -> None:
    description = _recorded() / "zarr.json"
    found = json.loads(description.read_text(encoding="utf-8"))
    found["attributes"]["regard"]["version"] = 3
    description.write_text(json.dumps(found), encoding="utf-8")
    regard.open("book.regard")


def there_already() -> None:
    _recorded()
    _recorded()


def port_taken() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        listening("127.0.0.1", other.getsockname()[1])


def not_ours() -> None:
    recording = regard.open(_recorded())
    Path("site").mkdir()
    Path("site/index.php").touch()
    publish(recording, "site")


def another_survey() -> None:
    Path("books").mkdir()
    Path("books/one.txt").write_text("Call me Ishmael.", encoding="utf-8")
    Path("heads.atlas").mkdir()
    Path("heads.atlas/plan.json").write_text("{}", encoding="utf-8")
    tokenizer: Any = SimpleNamespace(model_max_length=512)
    survey("books", "heads.atlas", Loader("smollm2", nn.Identity, lambda: tokenizer))


def unfinished_survey() -> None:
    Path("heads.atlas").mkdir()
    Path("heads.atlas/plan.json").write_text("{}", encoding="utf-8")
    regard.atlas.open("heads.atlas")


def pickled() -> str:
    Path("model").mkdir()
    for name in ("config.json", "pytorch_model.bin"):
        Path("model", name).touch()
    return _command("look", "An apple a day", "--model", "./model")


def no_model() -> str:
    Path("model").mkdir()
    return _command("look", "An apple a day", "--model", "./model")


def _command(*arguments: str) -> str:
    """Return the line in which a command says what is wrong."""
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 1
    return done.stderr.strip()


PROVOKED: dict[str, Callable[[], Any]] = {
    "Heads that can't be shared": heads,
    "Tensors of different types": types,
    "A mask in place of a pattern": mask,
    "Patterns joined with `and`": joined_with_and,
    "Ids for other tokens": document_ids,
    "A backend that can't": backend,
    "Positions past the table": position_table,
    "A matrix too large to materialise": dense,
    "A reduction without its parentheses": parentheses,
    "No attention was seen": nothing_seen,
    "No such module": no_such_module,
    "The mask is unknown": unknown_mask,
    "Weights that are no softmax": changed_weights,
    "The check failed": check_failed,
    "The model modified its tensors": written_over,
    "Queries and keys were not kept": let_go,
    "Tokens and matrix don't fit": tokens_missing,
    "Positions must be stated": unknown_positions,
    "A call that can't be altered": altered_twice,
    "A package is missing": package_missing,
    "No such recording": no_recording,
    "A recording that was interrupted": interrupted,
    "A damaged recording": chunk_lost,
    "A recording of a later version": later_format,
    "The name is taken": there_already,
    "The port is taken": port_taken,
    "The folder is not ours": not_ours,
    "Another survey is there": another_survey,
    "A survey that is not finished": unfinished_survey,
    "Pickled weights": pickled,
    "No model there": no_model,
}


def _described() -> dict[str, str]:
    return {one["title"]: one["message"] for one in SECTION.finditer(PAGE.read_text("utf-8"))}


@pytest.mark.parametrize("title", PROVOKED)
def test_the_message_is_as_printed(title: str) -> None:
    provoke = PROVOKED[title]
    if provoke in (pickled, no_model):
        said = provoke()
    else:
        with pytest.raises(Exception, match=r".") as raised:
            provoke()
        said = f"{type(raised.value).__name__}: {raised.value}"
    # The port was whichever was free, and absolute paths are where the test runs.
    said = re.sub(r"port \d+", "port 8080", said.replace(f"{Path.cwd()}/", ""))
    assert _described().get(title) == said


def test_the_page_has_no_other_errors() -> None:
    titles = re.findall(r"^### (.*)", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert titles == list(_described()) == list(PROVOKED)
