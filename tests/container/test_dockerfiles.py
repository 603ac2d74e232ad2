"""Dockerfiles of all vendors: bases and packages are pinned, what is pinned can be had, and a linter finds nothing."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import vendors
from container.image import ImageSpec
from tests.container.test_image import commands, described, members

ROOT = Path(vendors.__file__).parents[1]
HADOLINT = ROOT / ".cache/cuda/bin/hadolint"
BUILT = {"flash_attn": "2.8.3.post2", "apex": "25.09"}
# From the base's own constraints where it has some (NGC): a pin beside those is a contradiction.
BUILD_TOOLS = {"packaging", "ninja", "setuptools", "wheel"}
# DL3008: a Debian keeps no older version of a package. DL4006: grep's exit code is the one that counts. DL3059: layers
# are kept apart for the builder's cache.
LEFT_OUT = ("DL3008", "DL3059", "DL4006")
BASE = re.compile(r"(:(?!latest$)[\w.-]+|@sha256:[0-9a-f]{64})$")
PIN = re.compile(r"^[A-Za-z0-9._-]+(==[\w.]+$| @ git\+https://\S+@\w)")


def specs() -> dict[str, ImageSpec]:
    """Every image that a vendor's hosts get, with the packages of its cases, and NVIDIA's with what it can build."""
    found = {
        f"{vendor.name}-{framework}": described(
            vendor.name,
            framework,
            requirements=sorted((ROOT / "vendors" / vendor.name).glob(f"*-{framework}/requirements.txt")),
        )
        for vendor in vendors.working()
        for framework in vendor.images
    }
    return found | {"nvidia-built": described("nvidia", options=BUILT)}


def packages(spec: ImageSpec) -> Iterator[str]:
    """What its commands and requirements files name."""
    for argv in commands(spec):
        if any(word.endswith("install_packages.py") or word == "pip" for word in argv):
            words = argv[1 + next(i for i, word in enumerate(argv) if word.endswith(".py") or word == "install") :]
            yield from (word for word in words if not word.startswith("-") and word not in BUILD_TOOLS)
    for name, data in members(spec).items():
        if name.endswith(".txt"):
            lines = (line.partition("#")[0].strip() for line in data.decode().splitlines())
            yield from filter(None, lines)


def test_every_base_and_package_is_pinned() -> None:
    for name, spec in specs().items():
        bases = re.findall(r"^FROM (\S+)", spec.dockerfile, re.MULTILINE)
        assert len(bases) == 2 and all(BASE.search(base) for base in bases), name
        named = [*packages(spec)]
        assert named and [package for package in named if not PIN.match(package)] == [], name


@pytest.mark.nightly
@pytest.mark.skipif(not HADOLINT.exists(), reason="no .cache/cuda: make nightly installs nvidia.lock there")
def test_a_linter_finds_nothing_in_any_dockerfile(tmp_path: Path) -> None:
    files = [tmp_path / f"{name}.Dockerfile" for name in specs()]
    for file, spec in zip(files, specs().values(), strict=True):
        file.write_text(spec.dockerfile, encoding="utf-8")
    argv = [str(HADOLINT), "--no-color", *(f"--ignore={rule}" for rule in LEFT_OUT), *map(str, files)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_every_pin_is_a_version_that_the_index_has() -> None:
    """But for PaddlePaddle's build for CUDA, which is on an index of its own."""
    named = {package for spec in specs().values() for package in packages(spec) if "==" in package}
    named |= {f"{tool}=={version}" for tool, version in {"flash-attn": BUILT["flash_attn"]}.items()}
    if versions("pip") is None:
        pytest.skip("no package index can be reached")
    pinned = (package.split("==") for package in named if not package.startswith("paddlepaddle-gpu=="))
    assert [name for name, version in pinned if version not in (versions(name) or ())] == []


def versions(name: str) -> list[str] | None:
    """Those that the index has for this machine; None: it does not answer."""
    argv = [sys.executable, "-m", "pip", "index", "versions", name]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=200, check=False)
    found = re.search(r"^Available versions: (.*)$", done.stdout, re.MULTILINE)
    return found[1].split(", ") if found else None
