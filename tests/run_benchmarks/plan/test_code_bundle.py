"""The code that the hosts run: the same content, the same archive and name."""

import io
import os
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest

from run_benchmarks.console.command_line import ROOT
from run_benchmarks.hosts.local import LocalHost
from run_benchmarks.hosts.transfer import push
from run_benchmarks.plan.code_bundle import CodeBundle, bundle


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    for name in ("training/a.py", "monitors/b.py", "vendors/x/env.env", "vendors/x/__pycache__/c.py", "vendors/x/i.j2"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    for name in ("vendors/x/m-f/config/c.py", "training/benchmarks/m/f/base.py", "training/benchmarks/m/f/config.py"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    (root / "run_benchmarks").mkdir()
    (root / "run_benchmarks" / "secret.py").write_text("")
    return root


def names(code: CodeBundle) -> list[str]:
    with tarfile.open(fileobj=code.open()) as tar:
        return tar.getnames()


def test_it_holds_what_the_hosts_run_and_nothing_else(repository: Path) -> None:
    """Nor the case configs and base.py, which ranks do not read."""
    assert names(bundle(repository)) == ["training/a.py", "training/benchmarks/m/f/config.py", "monitors/b.py"]


def test_equal_content_is_equal_wherever_and_whenever_it_lies(repository: Path, tmp_path: Path) -> None:
    first = bundle(repository)
    (repository / "training" / "a.py").chmod(0o777)
    moved = repository.rename(tmp_path / "elsewhere")
    assert bundle(moved) == first
    (moved / "training" / "a.py").write_text("changed")
    assert bundle(moved).digest != first.digest
    assert bundle(moved, ("result",)).digest != bundle(moved).digest


def test_what_changed_since_the_plan_before_is_packed_anew(repository: Path) -> None:
    """Also where the size and the time of the change, which a user can set, are the same."""
    file, before = repository / "training" / "a.py", bundle(repository)
    assert bundle(repository) is before
    about = file.stat()
    time.sleep(0.05)
    file.write_text(file.name.rjust(about.st_size))
    os.utime(file, ns=(about.st_atime_ns, about.st_mtime_ns))
    assert bundle(repository).digest != before.digest
    (repository / "monitors" / "b.py").unlink()
    assert "monitors/b.py" not in names(bundle(repository))


def test_mount_points_are_empty_folders(repository: Path, tmp_path: Path) -> None:
    code = bundle(repository, ("result", "deep/er"))
    push(LocalHost("localhost"), code.open(), str(tmp_path / "code"), deadline=30)
    for name in ("result", "deep/er"):
        assert list((tmp_path / "code" / name).iterdir()) == []
    assert isinstance(code.open(), io.BytesIO)


def test_the_real_one_runs_by_itself(tmp_path: Path) -> None:
    """What a host gets starts there, without the controller's packages in reach."""
    push(LocalHost("localhost"), bundle(ROOT).open(), str(tmp_path / "code"), deadline=30)
    modules = ("training.benchmarks.driver.launch.supervise", "monitors", "training.benchmarks.driver.launch")
    for module in modules:
        done = subprocess.run(
            [sys.executable, "-P", "-m", module, "--help"],
            cwd=tmp_path,
            env={"PYTHONPATH": str(tmp_path / "code"), "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        assert "--" in done.stdout
    assert not (tmp_path / "code" / "run_benchmarks").exists()
