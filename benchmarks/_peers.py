"""Packages that are measured beside ours, in environments of their own.

What a peer needs may be older than what we have, and would replace it. So it gets an environment
that lies on top of this one: the same torch and transformers, unless it wants others.
"""

import hashlib
import site
import sys
from dataclasses import dataclass
from pathlib import Path

from materials.cache import kept
from materials.commands import run, run_python


@dataclass(frozen=True)
class Peer:
    """A package in an environment of its own, installed when it is first asked for.

    Attributes:
        package: its name.
        version: the one that is measured.
    """

    package: str
    version: str

    @property
    def python(self) -> Path:
        """The interpreter of its environment, which has all that this one has too.

        Raises:
            RuntimeError: it could not be installed.
        """
        # An environment that is made again elsewhere is another one.
        below = hashlib.sha256(f"{sys.prefix} {sys.version}".encode()).hexdigest()[:8]
        return kept(f"{self.package}-{self.version}-{below}", self._install) / "bin/python"

    def _install(self, folder: Path) -> None:
        requirement = f"{self.package}=={self.version}"
        failure = f"{requirement}, which is measured beside Regard, could not be installed"
        run_python("-m", "venv", "--without-pip", str(folder), failure=failure)
        (own,) = folder.glob("lib/python*/site-packages")
        # Not only its folders: what is installed to be edited is found by files of this kind too.
        lines = [f"import site; site.addsitedir({place!r})\n" for place in site.getsitepackages()]
        (own / "below.pth").write_text("".join(lines), encoding="utf-8")
        install = ("-m", "pip", "install", "--quiet", requirement)
        run(str(folder / "bin/python"), *install, failure=failure)


def python_of(peer: Peer | None) -> str | Path:
    """Return the interpreter of a peer's environment; that of this one for None."""
    return sys.executable if peer is None else peer.python


BERTVIZ = Peer("bertviz", "1.4.1")
"""With it comes boto3, which wants dateutil below 3."""

TRANSFORMER_LENS = Peer("transformer-lens", "4.3.0")
"""It brings some twenty packages, of which ours need none."""

CONTEXT_CITE = Peer("context-cite", "0.0.4")
"""With it come spacy, nltk and datasets."""

CAPTUM = Peer("captum", "0.9.0")
"""It wants matplotlib, and NumPy below 3."""

FLASHTRACE = Peer("flashtrace", "0.1.1")
"""With it come spacy, seaborn and wordfreq."""

INSEQ = Peer("inseq", "0.7.1")
"""It wants a typeguard of long ago."""
