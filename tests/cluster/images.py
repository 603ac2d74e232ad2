"""What containers of the tests are made of, without a registry: a Debian base image and the wheels of the workloads.

A site without Internet access makes both on a machine that has it and carries them over:

    python -m tests.cluster base-image      # a tar: docker import FILE TAG, BASE_IMAGE = "TAG" in test_conf.py
    python -m tests.cluster wheelhouse      # a folder: WHEELHOUSE = "FOLDER" in test_conf.py
"""

import contextlib
import hashlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.cluster.needs import missing
from tests.cluster.system import TestBedError, run

REPOSITORY = Path(__file__).resolve().parents[2]
CACHE = REPOSITORY / ".cache"
WHEELHOUSE = CACHE / "wheelhouse"
REQUIREMENTS = REPOSITORY / "requirements" / "workload.txt"
CONSTRAINTS = "constraints.txt"  # in a wheelhouse: the locked versions that it was made with

SUITE = "bookworm"
SUITE_PYTHON = "3.11"
PACKAGES = ("ca-certificates", "libgomp1", "make", "python3", "python3-venv")
BASE_IMAGE = f"clusterdyno-test/base:{SUITE}"
LABEL = "clusterdyno.recipe"
# What an image does not need of a fresh Debian: package lists and the downloaded packages.
LEFT_OUT = ("./var/cache/apt/archives/*.deb", "./var/lib/apt/lists/*", "./dev/*", "./proc/*", "./sys/*", "./run/*")


def recipe_hash(suite: str = SUITE) -> str:
    """Twelve hexadecimal digits of all that decides what is in the base image."""
    return hashlib.sha256(json.dumps([suite, PACKAGES, LEFT_OUT]).encode()).hexdigest()[:12]


def base_image_tar(cache: Path = CACHE, *, suite: str = SUITE) -> Path:
    """The root file system of a Debian as a tar (about 250 MB), made by debootstrap the first time (half a minute).

    The mirror is debootstrap's default, or the environment variable DEBIAN_MIRROR.

    Raises:
        TestBedError: debootstrap or tar is missing or failed; the end of their output is in the message.
    """
    tar = cache / f"base-{suite}-{recipe_hash(suite)}.tar"
    if tar.is_file():
        return tar
    if shutil.which("debootstrap") is None:
        raise TestBedError("debootstrap makes the base image and is missing (apt-get install debootstrap)")
    cache.mkdir(parents=True, exist_ok=True)
    print(f"base image: debootstrap of {suite} with {', '.join(PACKAGES)}, about a minute", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(prefix="base-", dir=cache) as temporary:
        root = Path(temporary) / "root"
        made = Path(temporary) / "base.tar"
        # In mount namespaces of its own, so that what debootstrap mounts can never outlive it.
        command = ["unshare", "--mount", "--propagation", "private", "debootstrap", "--variant=minbase"]
        mirror = os.environ.get("DEBIAN_MIRROR")
        run([*command, f"--include={','.join(PACKAGES)}", suite, str(root), *([mirror] if mirror else [])], timeout=900)
        excluded = [f"--exclude={pattern}" for pattern in LEFT_OUT]
        run(["tar", "--numeric-owner", "--sort=name", *excluded, "-C", str(root), "-cf", str(made), "."], timeout=300)
        made.replace(tar)
    return tar


def load_base_image(socket: Path) -> None:
    """Import the base image into the engine behind a socket under the tag BASE_IMAGE, unless it is there already.

    Raises:
        TestBedError: the tar could not be made or the engine refused it.
    """
    from tests.cluster import engine  # which needs more than Python alone

    tar = base_image_tar()
    client = engine.connect(socket, timeout=300)
    try:
        known = client.images.list(filters={"reference": BASE_IMAGE, "label": f"{LABEL}={recipe_hash()}"})
        if known:
            return
        repository, _, tag = BASE_IMAGE.rpartition(":")
        changes = [f"LABEL {LABEL}={recipe_hash()}", 'CMD ["/bin/bash"]']
        answer = client.api.import_image_from_file(str(tar), repository=repository, tag=tag, changes=changes)
        errors = [line for line in str(answer).splitlines() if "error" in line]
        if errors:
            raise TestBedError(f"import of {tar}: {errors[0]}")
    finally:
        client.close()


def make_wheelhouse(folder: Path = WHEELHOUSE, *, requirements: Path | None = None, python: str = SUITE_PYTHON) -> Path:
    """Download the wheels of requirements/workload.txt for the base image's Python, in the versions of the lock beside
    it; done once for a requirements file and its lock.

    `requirements` and `python` ("3.13"): of another file, for another Python.

    The environment variable PIP_ARGS goes to pip, for example an index with CPU builds of torch.

    Raises:
        TestBedError: pip failed; its output is on stderr.
    """
    arguments = shlex.split(os.environ.get("PIP_ARGS", ""))
    requirements = requirements or REQUIREMENTS
    wanted = hashlib.sha256(requirements.read_bytes() + python.encode()).hexdigest()
    stamp, constraints = folder / "requirements.sha256", folder / CONSTRAINTS
    locked = "".join(f"{version}\n" for version in _locked_versions(requirements))
    found = [file.read_text().strip() if file.is_file() else None for file in (stamp, constraints)]
    if found == [wanted, locked.strip()]:
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="wheelhouse-", dir=folder.parent) as temporary:
        made = Path(temporary) / "wheels"
        command = [sys.executable, "-m", "pip", "download", "--only-binary=:all:", f"--python-version={python}"]
        made.mkdir()
        (made / CONSTRAINTS).write_text(locked)
        within = ["-r", str(requirements), "-c", str(made / CONSTRAINTS)]
        argv = [*command, f"--dest={made}", *within, *arguments]
        print(f"wheelhouse: {shlex.join(argv)}", file=sys.stderr, flush=True)
        done = subprocess.run(argv, stdout=sys.stderr, stdin=subprocess.DEVNULL, check=False)
        if done.returncode != 0:
            raise TestBedError(f"{shlex.join(argv)}: exit code {done.returncode}")
        (made / stamp.name).write_text(f"{wanted}\n")
        if folder.exists():
            folder.rename(Path(temporary) / "old")
        made.rename(folder)
    return folder


def _locked_versions(requirements: Path) -> list[str]:
    """What `make run` installs of a requirements file, without hashes: newer wheels would be of no use to it. Empty
    where no locks stand beside the file, and for a lock itself.
    """
    locks = (requirements.with_suffix(".lock"), requirements.with_name("torch-cuda.lock"))
    lines = [
        line for lock in locks if lock.is_file() and lock != requirements for line in lock.read_text().splitlines()
    ]
    return [line.removesuffix("\\").strip() for line in lines if "==" in line and not line.startswith((" ", "#"))]


def main() -> None:
    """Make the base image's tar where hosts can be made, with Python alone: beside the installing of what others need.

    A failure is told by `python -m tests.cluster base-image`, which tries again.
    """
    if not missing():
        with contextlib.suppress(TestBedError):
            base_image_tar()


if __name__ == "__main__":
    main()
