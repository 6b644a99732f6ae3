"""Take pictures of the three tutorial examples of BertViz, with pages of Regard beside them.

    python -m examples.bertviz_gallery        writes to docs/gallery

The sentences are those of its tutorials, the model is MiniLM. BertViz has an environment of its
own. The names of files begin with "bertviz-".
"""

import argparse
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from PIL import Image
from transformers import AutoModel, AutoTokenizer

import regard
from benchmarks._peers import BERTVIZ
from benchmarks.page import from_npm
from examples.map_gallery import write
from examples.screenshot import Screenshot, browser
from materials import minilm
from materials.commands import run

PAIR = ("The cat sat on the mat", "The cat lay on the rug")
WORD, TOKEN = "lay", 10
VIEWS = {
    "head": ((380, 800), (1220, 800), "layer=2&head=mean&token=10"),
    "model": ((1040, 760), (1220, 760), "layer=2&head=0&view=heads"),
    "neuron": ((1040, 1180), (1220, 1180), "layer=2&head=0&token=10"),
}
"""By name, the size of BertViz' view, that of a page of Regard, and what to show of that."""


def write_bertviz(view: str, path: str) -> None:
    """Write a view of BertViz as a page; runs in its environment."""
    from bertviz import head_view, model_view
    from bertviz.neuron_view import show

    inputs, tokens, model, tokenizer = encoded(attn_implementation="eager")
    if view == "neuron":
        page = show(
            _with_queries_and_keys(model),
            "bert",
            tokenizer,
            *PAIR,
            display_mode="light",
            layer=2,
            head=0,
            html_action="return",
        )
    else:
        attention = model(**inputs, output_attentions=True).attentions
        draw, options = (head_view, {"layer": 2}) if view == "head" else (model_view, {})
        start = int(inputs["token_type_ids"][0].argmax())
        page = draw(attention, tokens, start, html_action="return", **options)
    Path(path).write_text(page.data, encoding="utf-8")


def _with_queries_and_keys(model: Any) -> Any:
    """Return a model as BertViz' own class, which returns queries and keys."""
    from bertviz.transformers_neuron_view import BertConfig, BertModel

    known = model.config.to_dict()
    config = BertConfig(model.config.vocab_size)
    for name in vars(config).keys() & known.keys():
        setattr(config, name, known[name])
    config.output_attentions = True
    theirs = BertModel(config).eval()
    missing = theirs.load_state_dict(model.state_dict(), strict=False).missing_keys
    assert not missing, missing
    return theirs


def encoded(**options: Any) -> tuple[Any, list[str], Any, Any]:
    """Return inputs, tokens, model and tokenizer."""
    model = AutoModel.from_pretrained(minilm(), **options).eval()
    tokenizer = AutoTokenizer.from_pretrained(minilm())
    inputs = tokenizer(*PAIR, return_tensors="pt")
    return inputs, tokenizer.convert_ids_to_tokens(inputs["input_ids"][0]), model, tokenizer


def theirs(view: str) -> bytes:
    """Return a picture of a view of BertViz."""
    with TemporaryDirectory() as folder, browser() as chromium:
        path = Path(folder) / "page.html"
        code = (
            f"from examples import bertviz_gallery as it; it.write_bertviz({view!r}, {str(path)!r})"
        )
        run(str(BERTVIZ.python), "-c", code, failure="BertViz could not be run")
        width, height = VIEWS[view][0]
        context = chromium.new_context(viewport={"width": width, "height": height})
        context.route("http**/*", from_npm)
        page = context.new_page()
        page.goto(path.as_uri())
        page.wait_for_selector("[id^=bertviz] svg text", state="attached")
        page.wait_for_timeout(1000)
        if view != "model":
            page.mouse.move(*_middle(page, f"svg text:text-is('{WORD}')"))
        if view == "neuron":
            page.mouse.click(*_middle(page, f".plus-sign >> nth={TOKEN}"))
        page.wait_for_timeout(1000)
        return page.screenshot()


def _middle(page: Any, what: str) -> tuple[float, float]:
    box = page.locator(what).first.evaluate("(one) => one.getBoundingClientRect().toJSON()")
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def ours(view: str) -> bytes:
    """Return a picture of the same in a page of Regard."""
    inputs, tokens, model, _ = encoded()
    with torch.no_grad(), regard.watch(model) as seen:
        model(**inputs)
    start = int(inputs["token_type_ids"][0].argmax())
    page = regard.page(seen, tokens, sentence_b_start=start, dimensions=view == "neuron")
    buffer = BytesIO()
    _, (width, height), address = VIEWS[view]
    shot = Screenshot(page, address, width=width, height=height)
    shot.savefig(buffer, dpi=100, format="png")
    return buffer.getvalue()


def main() -> None:
    """Take all pictures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--folder", type=Path, default=Path("docs/gallery"))
    options = parser.parse_args()
    for view in VIEWS:
        left, right = (Image.open(BytesIO(picture)) for picture in (theirs(view), ours(view)))
        both = Image.new("RGB", (left.width + right.width, left.height), "white")
        both.paste(left, (0, 0))
        both.paste(right, (left.width, 0))
        buffer = BytesIO()
        both.save(buffer, "png")
        write(buffer.getvalue(), options.folder / f"bertviz-{view}.png")


if __name__ == "__main__":
    main()
