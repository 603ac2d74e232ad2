"""The site of docs/ builds without the network; links, anchors and pages that are wrong are noticed."""

import shutil
from pathlib import Path

import pytest

from common.command_line import UNREAD
from run_benchmarks.commands import cli
from run_benchmarks.settings.docs import table_rows
from run_benchmarks.state import exit_codes
from tests.docs import generated, site
from tests.docs.pages import ROOT


def test_the_site_builds_and_what_is_wrong_with_a_page_is_named(tmp_path: Path) -> None:
    """One build for both: of all pages with some mistakes, exactly these are told."""
    pages = Path(shutil.copytree(ROOT / "docs", tmp_path / "docs"))
    with (pages / "reference" / "metrics.md").open("a") as page:
        page.write("\n[a](settings.md#gone) [b](gone.md) [c](#here)\n\n![d](https://elsewhere.example/d.png)\n")
    (pages / "orphan.md").write_text("# No page leads here\n")
    found = site.build(tmp_path / "site", pages)
    expected = ("orphan.md", "'gone.md'", "'#here'", "'#gone'", "metrics.html loads https://elsewhere.example/d.png")
    assert [word for word in expected if not any(word in line for line in found)] == [], found
    unexpected = [line for line in found if not any(word in line for word in expected)]
    assert all("Aborted" in line or "not included in the" in line for line in unexpected), unexpected
    assert "<table>" in (tmp_path / "site" / "reference" / "settings.html").read_text(encoding="utf-8")


def test_the_site_says_what_the_code_says() -> None:
    pages = {page.stem: page.read_text(encoding="utf-8") for page in (ROOT / "docs").rglob("*.md")}
    marked = [match["name"] for text in pages.values() for match in generated.MARK.finditer(text)]
    assert sorted(marked) == sorted(generated.PARTS)
    settings = generated.completed(pages["settings"])
    assert all(f"| `{row[1]}` |" in settings for row in table_rows())
    commands = generated.completed(pages["run-commands"])
    assert all(f"## run_benchmarks/run.py {verb}\n" in commands for verb in cli.VERBS)
    assert "--world_size" in generated.completed(pages["workload-commands"])
    assert "## python -m simulation topology draw\n" in generated.completed(pages["simulation-commands"])
    assert "`opt_lamb_beta_1`, `adam_beta1` | `beta1` |" in generated.completed(pages["from-flagperf"])
    assert "| H100 SXM | 66.9 | 66.9 | 494.7 |" in generated.completed(pages["training-benchmarks"])
    assert "## orchestration\n" in generated.completed(pages["performance"])
    assert "| [12](#job-12) | DeepSpeed, rank 0 of 2, ZeRO 3 |" in generated.completed(pages["fidelity"])
    assert "| `max_busbw_GBps` | GB/s | higher | yes |" in generated.completed(pages["metrics"])


def test_an_unknown_part_is_refused() -> None:
    with pytest.raises(KeyError, match="weather"):
        generated.completed("<!-- generated: weather -->")


def test_the_page_of_exit_codes_has_all_of_them() -> None:
    page = (ROOT / "docs" / "reference" / "exit-codes.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1].strip() for line in page.splitlines() if line.startswith("| ")]
    known = {value for name, value in vars(exit_codes).items() if name.startswith("EXIT_")}
    assert {int(row) for row in rows if row.isdigit()} == known | {UNREAD}
