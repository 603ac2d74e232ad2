"""A stock Debian userland with its own Python, in which a user without rights runs commands under nohup.

Made by debootstrap, unpacked anew for each use. It has the machine's kernel, and no network but a loopback unless a
command is given the machine's.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from tests.cluster import images
from tests.cluster.system import run

USER, USER_ID = "user", 1000
HOME = f"/home/{USER}"
PATH = "/usr/local/bin:/usr/bin:/bin"
INIT = Path(__file__).with_name("stock_init.sh")


@dataclass(frozen=True, kw_only=True)
class Suite:
    """A Debian release and the version of its Python."""

    name: str
    python: str


SUITES = {suite.name: suite for suite in (Suite(name="bookworm", python="3.11"), Suite(name="trixie", python="3.13"))}


class Userland:
    """The root file system of a suite, while the `with` lasts; `outside` turns its paths into the machine's."""

    def __init__(self, suite: Suite, cache: Path = images.CACHE) -> None:
        self.suite = suite
        self._cache = cache

    def __enter__(self) -> Userland:
        """Unpack it. Raises TestBedError where debootstrap or tar fails."""
        tar = images.base_image_tar(self._cache, suite=self.suite.name)
        self._root = Path(tempfile.mkdtemp(prefix=f"stock-{self.suite.name}-", dir=self._cache))
        try:
            run(["tar", "--numeric-owner", "-xf", str(tar), "-C", str(self._root)], timeout=300)
            self._root.chmod(0o755)
            with (self._root / "etc/passwd").open("a") as passwd:
                passwd.write(f"{USER}:x:{USER_ID}:{USER_ID}::{HOME}:/bin/bash\n")
            self.give(self._make(HOME))
        except BaseException:
            shutil.rmtree(self._root)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        shutil.rmtree(self._root)

    def outside(self, inside: str) -> Path:
        """The machine's path of an absolute path in here."""
        return self._root / inside.lstrip("/")

    def _make(self, inside: str) -> Path:
        folder = self.outside(inside)
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def give(self, folder: Path) -> None:
        """Make the user the owner of a folder and all that is in it."""
        for path in (folder, *folder.rglob("*")):
            os.chown(path, USER_ID, USER_ID, follow_symlinks=False)

    def add(self, source: Path, inside: str) -> None:
        """Copy a folder of the machine to a path in here, where everybody may read it."""
        shutil.copytree(source, self.outside(inside), copy_function=_link_or_copy)

    def run(
        self,
        argv: Sequence[str],
        *,
        directory: str = "/",
        network: bool = False,
        environment: Mapping[str, str] | None = None,
        seconds: float = 600.0,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command as the user under nohup; stdout has stderr in it. `network`: with that of the machine.

        Raises:
            subprocess.TimeoutExpired: it took longer; all of it is killed.
        """
        own = ["--mount", "--pid", "--ipc", *([] if network else ["--net"])]
        launcher = ["unshare", *own, "--propagation", "private", "--fork", "--kill-child"]
        command = [*launcher, "sh", str(INIT), str(self._root), str(USER_ID), directory, *argv]
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={"HOME": HOME, "USER": USER, "PATH": PATH, "LANG": "C.UTF-8", **(environment or {})},
            timeout=seconds,
            check=False,
            start_new_session=True,
        )


def _link_or_copy(source: str, target: str) -> str:
    """A hard link, where both lie on one file system: wheels are large and nobody writes to them."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
    return target
