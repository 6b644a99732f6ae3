"""Take pictures of the page of an attribution: a planted fact, and another that opposes it.

    python -m examples.attribution_gallery        writes to docs/gallery

SmolLM2-135M is asked what Harriet bought, among 32 lines of which two others bought something. The
names of files begin with "attribution-".
"""

import argparse
import random
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import regard
from examples.map_gallery import write
from examples.screenshot import browser
from materials import moby_dick, smollm2
from regard.attribution import Attribution
from regard.attribution.passages import spans_of

SHOTS = {
    "telescope": ((1440, 900), False),
    "telescope-dark": ((1440, 900), True),
    "telescope-phone": ((390, 844), False),
}
"""By name: the size of the screen, and whether it is dark."""


def prompt() -> tuple[str, list[str]]:
    """Return a prompt and its passages: sentences of Moby-Dick, and three facts."""
    book = moby_dick().read_text(encoding="utf-8")[60_000:200_000].replace("\n", " ")
    sentences = [book[start:stop] for start, stop in spans_of(book, "sentences")]
    chosen = [one for one in dict.fromkeys(sentences) if 60 < len(one) < 160]
    passages = random.Random(0).sample(chosen, 29)
    passages.insert(5, "Harriet bought a telescope last week, and Edmund carried it home.")
    passages.insert(12, "Oliver bought a bicycle last week.")
    passages.insert(20, "Matilda bought a lantern last week.")
    question = "Question: What did Harriet buy last week, and who carried it home?"
    return "\n".join([*passages, "", question, "Answer: Harriet bought a"]), passages


def attributed() -> Attribution:
    """Ask SmolLM2, and score the passages for each token of its answer."""
    model = AutoModelForCausalLM.from_pretrained(smollm2(), dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(smollm2())
    text, passages = prompt()
    return regard.attribute(
        model, tokenizer, text, passages=passages, each_token=True, max_new_tokens=4
    )


def main() -> None:
    """Take all pictures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--folder", type=Path, default=Path("docs/gallery"))
    options = parser.parse_args()
    found = attributed()
    page = found.page(about="SmolLM2-135M-Instruct", checked=found.verify(3)).html
    with browser() as chromium:
        for name, ((width, height), dark) in SHOTS.items():
            context = chromium.new_context(
                viewport={"width": width, "height": height},
                color_scheme="dark" if dark else "light",
                device_scale_factor=2 if width < 500 else 1,
            )
            opened = context.new_page()
            opened.set_content(page)
            opened.wait_for_selector(".passage-card h2")
            path = options.folder / f"attribution-{name}.png"
            write(opened.screenshot(), path)
            print(path)


if __name__ == "__main__":
    main()
