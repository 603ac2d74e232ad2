"""What surrounds the cluster tests: when they are skipped or fail, and the wheelhouse. These need no cluster."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.cluster import images, needs
from tests.cluster.bed import TestBed
from tests.cluster.system import TestBedError

CONFTEST = """
import tests.conftest as shared
from tests.conftest import *
shared.missing = lambda: ["a computer"]
"""
MODULE = """
import pytest

@pytest.mark.cluster
def test_of_the_cluster(): raise AssertionError("ran")

@pytest.mark.cluster
@pytest.mark.xfail
def test_that_is_expected_to_fail(): raise AssertionError("ran")

def test_of_no_cluster(): pytest.skip("for its own reasons")
"""


def run_suite(folder: Path, environment: dict[str, str]) -> str:
    """The output of pytest over a cluster test and another one on a machine that lacks what cluster tests need."""
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_it.py").write_text(MODULE)
    options = [f"--rootdir={folder}", "-c", "/dev/null", "-p", "no:cacheprovider", "-o", "markers=cluster", "-rfs"]
    argv = [sys.executable, "-m", "pytest", *options, str(folder)]
    kept = {name: value for name, value in os.environ.items() if name != "CI" and not name.startswith("PYTEST")}
    return subprocess.run(argv, cwd=images.REPOSITORY, env=kept | environment, capture_output=True, text=True).stdout


def test_cluster_tests_are_skipped_with_a_line_that_says_what_they_need(tmp_path: Path) -> None:
    output = run_suite(tmp_path, {})
    assert "3 skipped" in output and "failed" not in output
    assert "cluster tests need a computer" in output


def test_in_ci_a_skipped_cluster_test_is_a_failure(tmp_path: Path) -> None:
    output = run_suite(tmp_path, {"CI": "true"})
    assert "1 skipped, 2 errors" in output
    assert "CI=true, and this cluster test did not run" in output and "a computer" in output


def test_without_root_the_need_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert needs.missing() == ["root, for network namespaces and Docker engines (sudo make test)"]


def test_a_missing_program_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setitem(needs.PROGRAMS, "dynod", "dyno-server")
    assert "dynod" in needs.missing()[0] and "dyno-server" in needs.missing()[0]


@pytest.mark.parametrize(("n", "engine"), [(0, True), (251, True), (2, [True])])
def test_a_bed_that_cannot_be_is_refused(tmp_path: Path, n: int, engine: bool | list[bool]) -> None:
    with pytest.raises(ValueError, match=r"n: |engine: "):
        TestBed(n, tmp_path, engine=engine)


def wheel(folder: Path, name: str, version: str = "1.0", needs: str | None = None) -> None:
    """Write a package of pure Python, as small as pip takes it."""
    folder.mkdir(exist_ok=True)
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        about = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        archive.writestr(f"{info}/METADATA", about + (f"Requires-Dist: {needs}\n" if needs else ""))
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")


@pytest.fixture
def requirements(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A requirements file beside an index of one wheel, in place of the workloads' own."""
    wheel(tmp_path / "index", "first")
    file = tmp_path / "requirements.txt"
    file.write_text("first==1.0\n")
    monkeypatch.setattr(images, "REQUIREMENTS", file)
    monkeypatch.setenv("PIP_ARGS", f"--no-index --find-links '{tmp_path}/index'")
    return file


def test_the_wheelhouse_follows_the_requirements(requirements: Path, tmp_path: Path) -> None:
    folder = images.make_wheelhouse(tmp_path / "cache/wheelhouse")
    assert [path.name for path in folder.glob("*.whl")] == ["first-1.0-py3-none-any.whl"]
    begin = folder.stat().st_ino
    assert images.make_wheelhouse(folder).stat().st_ino == begin
    wheel(tmp_path / "index", "second")
    requirements.write_text("second==1.0\n")
    images.make_wheelhouse(folder)
    assert [path.name for path in folder.glob("*.whl")] == ["second-1.0-py3-none-any.whl"]
    assert [path.name for path in folder.parent.iterdir()] == ["wheelhouse"]


def test_the_wheelhouse_has_the_locked_versions_of_what_the_requirements_need(
    requirements: Path, tmp_path: Path
) -> None:
    index = tmp_path / "index"
    wheel(index, "asking", needs="first")
    wheel(index, "first", "2.0")
    requirements.write_text("asking==1.0\n")
    lock = requirements.with_suffix(".lock")
    lock.write_text(
        "# locked\nasking==1.0 \\\n    --hash=sha256:00\nfirst==1.0 ; python_version > '3' \\\n    --hash=sha256:00\n"
    )
    folder = images.make_wheelhouse(tmp_path / "cache/wheelhouse")
    assert {path.name.split("-py3")[0] for path in folder.glob("*.whl")} == {"asking-1.0", "first-1.0"}
    lock.write_text(lock.read_text().replace("first==1.0", "first==2.0"))
    images.make_wheelhouse(folder)
    assert {path.name.split("-py3")[0] for path in folder.glob("*.whl")} == {"asking-1.0", "first-2.0"}


def test_a_download_that_fails_leaves_the_wheelhouse_as_it_was(requirements: Path, tmp_path: Path) -> None:
    folder = images.make_wheelhouse(tmp_path / "cache/wheelhouse")
    requirements.write_text("third==1.0\n")
    with pytest.raises(TestBedError, match="exit code 1"):
        images.make_wheelhouse(folder)
    assert [path.name for path in folder.glob("*.whl")] == ["first-1.0-py3-none-any.whl"]
    assert [path.name for path in folder.parent.iterdir()] == ["wheelhouse"]


def test_the_base_image_needs_python_alone() -> None:
    """It is made while packages are being installed."""
    argv = [sys.executable, "-S", "-c", "from tests.cluster.images import main"]
    done = subprocess.run(argv, cwd=images.REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
