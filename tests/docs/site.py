"""Builds the site of docs/ with mkdocs: `python -m tests.docs.site [FOLDER]`, by default .cache/site.

Exit code 1: mkdocs warns, a link or an anchor leads nowhere, a page is outside the navigation, or a browser would load
something from another host. mkdocs has an environment of its own, .cache/docs, made from requirements/docs.lock at the
first call and after each change of the lock.
"""

import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.docs.generated import completed
from tests.docs.pages import ROOT, text_of

ENVIRONMENT = ROOT / ".cache" / "docs"
LOCK = ROOT / "requirements" / "docs.lock"
SITE = ROOT / ".cache" / "site"
CONFIG = ROOT / "mkdocs.yml"
LOADED = re.compile(
    r"""<(?:script|img|iframe|source)\b[^>]*\bsrc="?(?P<source>(?:https?:)?//[^\s">]+)"""
    r"""|<link\b(?=[^>]*\brel="?(?:stylesheet|preconnect|preload|icon))[^>]*\bhref="?(?P<link>(?:https?:)?//[^\s">]+)"""
)


def environment() -> Path:
    """The Python that has mkdocs.

    Raises:
        subprocess.CalledProcessError: it could not be installed; pip's words are on stderr.
    """
    python, stamp = ENVIRONMENT / "bin" / "python", ENVIRONMENT / "lock.sha256"
    wanted = hashlib.sha256(LOCK.read_bytes()).hexdigest()
    if not stamp.is_file() or stamp.read_text() != wanted:
        if not python.exists():
            subprocess.run([ROOT / "scripts" / "make_venv.sh", ENVIRONMENT], check=True)
        subprocess.run([ROOT / "scripts" / "install.sh", ENVIRONMENT, "docs"], check=True)
        stamp.write_text(wanted)
    return python


def build(folder: Path = SITE, docs: Path = ROOT / "docs") -> list[str]:
    """Write the site into a folder; returns what is wrong with it, one line each."""
    python = environment()
    with tempfile.TemporaryDirectory() as temporary:
        pages = Path(temporary) / "docs"
        shutil.copytree(docs, pages)
        for page in pages.rglob("*.md"):
            page.write_text(completed(text_of(page)), encoding="utf-8")
        config = Path(temporary) / "mkdocs.yml"
        shutil.copy(CONFIG, config)
        command = [str(python), "-m", "mkdocs", "build", "--strict", "-f", str(config), "-d", str(folder.resolve())]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env={"NO_MKDOCS_2_WARNING": "1"})
    said = [line.strip() for line in done.stderr.splitlines() if line.strip() and not line.startswith("INFO")]
    found = said if done.returncode else []
    return found + [f"{page.relative_to(folder)} loads {name}" for page in _html(folder) for name in foreign(page)]


def _html(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.html"))


def foreign(page: Path) -> list[str]:
    """What a browser would load from another host to show a page."""
    return [match["source"] or match["link"] for match in LOADED.finditer(page.read_text(encoding="utf-8"))]


def main(words: list[str]) -> int:
    """Build; returns the exit code."""
    folder = Path(words[0]) if words else SITE
    found = build(folder)
    print("\n".join(found) if found else f"{len(_html(folder))} pages: {folder / 'index.html'}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
