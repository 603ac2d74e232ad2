"""The pages name files, folders and headings that exist."""

import re
from pathlib import Path

import pytest

from tests.docs.pages import LINK, ROOT, broken_links, exists, pages, paths, text_of

READMES = ("README.md", "README.zh.md")
LINE = 140  # characters
WORDS = 45_000
UNCOUNTED = {"README.zh.md", "CHANGELOG.md"}
PAGES = [pytest.param(page, id=page.name) for page in pages()]


@pytest.mark.parametrize("page", PAGES)
def test_every_path_that_a_page_names_exists(page: Path) -> None:
    missing = [name for name in paths(text_of(page)) if not exists(name)]
    assert not missing, f"{page.relative_to(ROOT)} names what is not in the repository: {missing}"


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    assert not broken_links(page, text_of(page))


def test_a_renamed_file_folder_or_heading_is_noticed() -> None:
    """What the tests above rely on, on a page that is wrong."""
    text = (
        "`settings/`, `plan/planner.py`, `<model>/config.py`, `rooms/`, `plan/gone.py` "
        "[a](docs/explanation/security.md#trust) [b](docs/explanation/security.md#gone) [c](docs/gone.md)"
    )
    assert [name for name in paths(text) if not exists(name)] == ["rooms/", "plan/gone.py"]
    assert broken_links(ROOT / "README.md", text) == ["docs/explanation/security.md#gone", "docs/gone.md"]


def long_lines(text: str) -> list[int]:
    """The numbers of the lines over LINE characters; tables and code do not count."""
    found, fenced = [], False
    for number, line in enumerate(text.splitlines(), start=1):
        fenced ^= line.startswith("```")
        if not fenced and not line.startswith(("|", "    ")) and len(line) > LINE:
            found.append(number)
    return found


def test_no_line_of_text_is_long() -> None:
    found = [
        f"{page.relative_to(ROOT)}:{number}"
        for page in pages()
        if page.name != "CHANGELOG.md"
        for number in long_lines(page.read_text(encoding="utf-8"))
    ]
    assert not found, f"over {LINE} characters: {found}"


@pytest.mark.parametrize("name", ["README.md", "README.zh.md", "docs/index.md"])
def test_the_way_in_asks_who_is_bad_and_answers_by_one_command_before_any_table(name: str) -> None:
    before, *_ = re.split(r"^\s*\|", (ROOT / name).read_text(encoding="utf-8"), maxsplit=1, flags=re.MULTILINE)
    command = re.search(r"^ {4}\.venv/bin/python run_benchmarks/run\.py .*(accept|bad_host).*$", before, re.MULTILINE)
    assert command is not None and "host 10.77.252.3: all its pairs are 61 % slow" in before
    first = re.search(r"^ {4}", before, re.MULTILINE)
    assert first is not None and first.start() == command.start(), "another command stands before it"


def test_a_long_line_is_noticed_in_text_alone() -> None:
    long = "word " * 29
    assert long_lines(f"# a\n{long}\n```\n{long}\n```\n| {long} |\n    {long}\n{long}\n") == [2, 8]


def test_the_documentation_can_be_read_in_a_day() -> None:
    """All pages that a person reads, in one language; tables of docs/data/ are looked up, not read."""
    words = {page: len(page.read_text(encoding="utf-8").split()) for page in pages() if page.name not in UNCOUNTED}
    largest = sorted(((count, str(page.relative_to(ROOT))) for page, count in words.items()), reverse=True)[:5]
    assert sum(words.values()) <= WORDS, f"{sum(words.values())} words of at most {WORDS}; the largest: {largest}"


def test_every_page_that_code_names_exists() -> None:
    mention = re.compile(r"(?<![\w/])docs/(?![dl]\.|local|gone)[\w/-]+\.(md|svg|toml)")
    rooms = [folder for folder in ROOT.iterdir() if folder.is_dir() and not folder.name.startswith((".", "result"))]
    named = [
        (path, match[0])
        for path in sorted(path for room in rooms for path in room.rglob("*.py"))
        if path != Path(__file__)
        for match in mention.finditer(path.read_text(encoding="utf-8"))
    ]
    assert len(named) > 20
    assert not [f"{path.relative_to(ROOT)}: {name}" for path, name in named if not (ROOT / name).is_file()]


def test_where_do_i_find_what_has_ten_questions_and_names_a_room_for_each() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = text.partition("## Where do I find what")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ") and "?" in line.split("|")[1]]
    assert len(rows) >= 10
    for row in rows:
        assert any(name.endswith("/") for name in paths(row)), f"no room: {row}"


def commands(page: str) -> list[str]:
    """Indented lines of a page without their remarks, which are in its language."""
    lines = (ROOT / page).read_text(encoding="utf-8").splitlines()
    return [line.partition("  # ")[0].rstrip() for line in lines if line.startswith("    ")]


def links(page: str) -> list[str]:
    """Where a page leads, in order, without the other languages."""
    found = (match["target"] for match in LINK.finditer((ROOT / page).read_text(encoding="utf-8")))
    return [target for target in found if not target.startswith("README")]


def test_the_readme_is_short_and_says_the_same_in_both_languages() -> None:
    for page in READMES:
        assert len((ROOT / page).read_text(encoding="utf-8").splitlines()) < 120
    english, chinese = READMES
    assert commands(english) == commands(chinese) and links(english) == links(chinese)
    assert any("bad_host.py" in command for command in commands(english))
    assert len([target for target in links(english) if "/tutorials/" in target]) >= 4
