"""The pages of the documentation, the paths that they name, and the paths that exist in the repository.

A link of this form stands for a table of docs/data/, which the site shows in its place; its cells are Markdown:

[The table](../data/faults/ranks.csv)
"""

import csv
import os
import re
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TABLE = re.compile(r"^\[The table\]\((?P<file>[^)\s]+\.csv)\)$", re.MULTILINE)
UNSEARCHED = {"__pycache__", "result"}
LINK = re.compile(r"\]\((?P<target>[^)\s]+)\)")
NAMED = re.compile(r"(?<!`)`(?P<name>[^`\n]+)`(?!`)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
PLACEHOLDER = re.compile(r"[<>*{}$\s=\[]|\.\.\.")
SUFFIXES = (".py", ".sh", ".md", ".toml", ".lock", ".svg", ".j2")
HEADING = re.compile(r"^#+ (?P<title>.+)$", re.MULTILINE)
NOT_A_SLUG = re.compile(r"[^\w\- ]")

# Files that a run creates, by the names that pages give them.
CREATED = {"run.lock", "workload.lock", "D/workload.lock", "network.html"}


def pages() -> list[Path]:
    """README.md, CONTRIBUTING.md and their like, and everything in docs/."""
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def data_table(file: Path) -> str:
    """A CSV file as a table in Markdown.

    Raises:
        OSError: it cannot be read.
    """
    header, *rows = csv.reader(file.read_text(encoding="utf-8").splitlines())
    return markdown_table(header, rows)


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown; a `|` in a cell does not end it."""
    cells = ([cell.replace("|", "\\|") for cell in row] for row in rows)
    return "".join(f"| {' | '.join(row)} |\n" for row in [header, ["---"] * len(header), *cells])


def text_of(page: Path) -> str:
    """What a page says, the tables of docs/data/ in their places.

    Raises:
        OSError: the page, or a table that it shows, cannot be read.
    """
    text = page.read_text(encoding="utf-8")
    return TABLE.sub(lambda link: data_table(page.parent / link["file"]).rstrip("\n"), text)


@cache
def repository() -> tuple[str, ...]:
    """Paths of all files and folders from the root, each with a slash in front, a folder with one behind, too."""
    found = []
    for folder, folders, files in os.walk(ROOT):
        folders[:] = [name for name in folders if name not in UNSEARCHED and (name == ".ci" or name[0] != ".")]
        place = Path(folder).relative_to(ROOT).as_posix()
        prefix = "/" if place == "." else f"/{place}/"
        found += [*(f"{prefix}{name}/" for name in folders), *(f"{prefix}{name}" for name in files)]
    return tuple(found)


def paths(text: str) -> list[str]:
    """What a page writes as code and what is a path of the repository by its form, without placeholders."""
    names = (match["name"].partition("::")[0] for match in NAMED.finditer(FENCE.sub("", text)))
    return [name for name in names if not PLACEHOLDER.search(name) and (name.endswith(SUFFIXES) or _is_folder(name))]


def _is_folder(name: str) -> bool:
    return name.endswith("/") and name[0] not in "/~."


def exists(name: str) -> bool:
    """Whether the repository has such a file or folder: at its root, or below any folder, as pages shorten paths."""
    return name in CREATED or any(path.endswith(f"/{name}") for path in repository())


def broken_links(page: Path, text: str) -> list[str]:
    """Targets of links that are no file of the repository, or no heading of the file."""
    found = []
    for match in LINK.finditer(text):
        target = match["target"]
        if "://" in target:
            continue
        place, _, anchor = target.partition("#")
        file = (page.parent / place) if place else page
        if not file.exists() or (anchor and anchor not in slugs(file.read_text(encoding="utf-8"))):
            found.append(target)
    return found


def slugs(text: str) -> set[str]:
    """The anchors that GitHub gives the headings of a page."""
    titles = (match["title"].lower() for match in HEADING.finditer(FENCE.sub("", text)))
    return {NOT_A_SLUG.sub("", title).replace(" ", "-") for title in titles}
