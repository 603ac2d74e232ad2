"""Reads the git commit of the code and its differences from that commit."""

import subprocess
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

# Files that determine a result: those that the hosts run, the controller, and the sources of images.
FOLDERS = (
    "common", "protocol", "workloads", "training", "monitors", "vendors", "run_benchmarks", "container", "requirements",
)  # fmt: skip
WORDS = {"?": "untracked", "!": "ignored by git", "D": "deleted"}
STATUS = ("status", "--porcelain", "-z", "--no-renames")
GIT_SECONDS = 30
MAX_NAMED = 50


@dataclass(frozen=True)
class Revision:
    """`name` is the commit, with `-dirty` if there are `changes`; None outside a repository."""

    name: str | None
    changes: tuple[str, ...] = ()


def revision(root: Path, bundled: Collection[str]) -> Revision:
    """The revision of the repository at `root`.

    Args:
        bundled: files that the hosts get, relative to `root`: they count even if git ignores them.
    """
    name = _git(root, "describe", "--always", "--abbrev=40")
    tracked = _git(root, *STATUS, "--untracked-files=no", "--", ".")
    # Ignored files count only here: a virtual environment has tens of thousands of them.
    there = [folder for folder in FOLDERS if (root / folder).is_dir()]
    others = _git(root, *STATUS, "--untracked-files=all", "--ignored=traditional", "--", *there) if there else ""
    flagged = _git(root, "ls-files", "-v", "-z")
    if name is None or tracked is None or others is None or flagged is None:
        return Revision(None)
    changes = sorted([*_changes({*tracked.split("\0"), *others.split("\0")}, bundled), *_uncompared(root, flagged)])
    more = [f"and {len(changes) - MAX_NAMED} more"] if len(changes) > MAX_NAMED else []
    return Revision(f"{name.strip()}-dirty" if changes else name.strip(), (*changes[:MAX_NAMED], *more))


def _changes(entries: Collection[str], bundled: Collection[str]) -> list[str]:
    """The entries of `git status` that may affect a result: a tracked file anywhere, others below FOLDERS."""
    found = []
    for entry in entries:
        state, path = entry[:2], entry[3:]
        if path and (state != "!!" or path in bundled):
            word = WORDS.get(state[0]) or WORDS.get(state[1]) or "changed"
            found.append(f"{word}: {path}")
    return found


def _uncompared(root: Path, flagged: str) -> list[str]:
    """Existing files that `git status` does not compare: marked assume-unchanged (a small letter) or skip-worktree."""
    names = (entry[2:] for entry in flagged.split("\0") if entry and (entry[0].islower() or entry[0] == "S"))
    return [f"not compared by git: {name}" for name in names if (root / name).exists()]


def _git(root: Path, *words: str) -> str | None:
    try:
        answer = subprocess.run(
            ["git", *words], cwd=root, capture_output=True, text=True, errors="replace", timeout=GIT_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout if answer.returncode == 0 else None
