"""Which commit a run is of: whatever may decide a result and is not in it makes it dirty, by name."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from run_benchmarks.plan.code_bundle import bundle
from run_benchmarks.session.revision import MAX_NAMED, Revision, revision


def git(root: Path, *words: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", *identity, *words], cwd=root, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    for name in ("training/a.py", "vendors/b.py", "run_benchmarks/c.py", "docs/d.md"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    (root / ".gitignore").write_text("__pycache__/\nlocal/\n/result\n")
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-qm", "first")
    return root


def of(root: Path) -> Revision:
    return revision(root, bundle(root).names)


def add(name: str) -> Callable[[Path], None]:
    def write(root: Path) -> None:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("GB = 1e6\n")

    return write


@pytest.mark.parametrize("name", [None, "training/__pycache__/a.pyc", "result/x.py", "notes.txt", "docs/local.md"])
def test_a_clean_one_is_its_commit(root: Path, name: str | None) -> None:
    if name:
        add(name)(root)
    assert of(root) == Revision(git(root, "rev-parse", "HEAD"))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (add("training/a.py"), "changed: training/a.py"),
        (add("docs/d.md"), "changed: docs/d.md"),
        (add("training/new/ä b.py"), "untracked: training/new/ä b.py"),
        (add("run_benchmarks/e.py"), "untracked: run_benchmarks/e.py"),
        (add("training/local/f.py"), "ignored by git: training/local/f.py"),
        (lambda root: (root / "vendors/b.py").unlink(), "deleted: vendors/b.py"),
    ],
    ids=["edited", "a document", "untracked", "of the controller", "ignored", "deleted"],
)
def test_what_is_not_in_the_commit_is_named(root: Path, change: Callable[[Path], None], expected: str) -> None:
    change(root)
    assert of(root) == Revision(f"{git(root, 'rev-parse', 'HEAD')}-dirty", (expected,))


@pytest.mark.parametrize("flag", ["--assume-unchanged", "--skip-worktree"])
def test_a_file_that_git_does_not_compare_is_named(root: Path, flag: str) -> None:
    git(root, "update-index", flag, "training/a.py", "docs/d.md")
    (root / "training/a.py").write_text("GB = 1e6\n")
    (root / "docs/d.md").unlink()  # as in a sparse checkout
    assert of(root) == Revision(f"{git(root, 'rev-parse', 'HEAD')}-dirty", ("not compared by git: training/a.py",))


def test_many_are_bounded_and_none_is_none(root: Path, tmp_path: Path) -> None:
    for number in range(MAX_NAMED + 2):
        add(f"training/{number:03}.py")(root)
    found = of(root)
    assert len(found.changes) == MAX_NAMED + 1 and found.changes[-1] == "and 2 more"
    assert revision(tmp_path, ()) == Revision(None)
