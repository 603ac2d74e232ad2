"""The commands of the pages print what the pages show: every `$ python ...` with the lines below it."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from simulation import cli
from simulation.topology import options
from tests.simulation.analytical import recorded

ROOT = Path(__file__).resolve().parents[2]
TWO_PODS = ROOT / "tests" / "data" / "simulation" / "topo" / "two_pods.yaml"
PROMPT = re.compile(r"    \$ (?:\.venv/bin/)?python -m ")


def examples(page: str) -> list[tuple[str, list[str]]]:
    """Each module and words of a page's commands with the lines that it shows."""
    found: list[tuple[str, list[str]]] = []
    shown = False
    for line in (ROOT / page).read_text(encoding="utf-8").splitlines():
        if PROMPT.match(line):
            found.append((PROMPT.sub("", line), []))
            shown = True
        elif shown and line.startswith("    "):
            found[-1][1].append(line.removeprefix("    "))
        else:
            shown = False
    return found


@pytest.mark.parametrize("page", ["docs/reference/simulation.md"])
def test_a_command_prints_what_the_page_shows(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    shutil.copy(TWO_PODS, tmp_path)
    recorded.workload(recorded.SEED, tmp_path)
    commands = examples(page)
    assert commands
    for command, lines in commands:
        module, *words = shlex.split(command)
        if module == "simulation":
            assert cli.main(words) == 0, command
        else:
            subprocess.run([sys.executable, "-m", module, *words], check=True)
        assert capsys.readouterr().out.splitlines() == lines, command
    for picture in tmp_path.glob("topology.svg"):
        assert picture.read_bytes() == (ROOT / "docs" / "images" / picture.name).read_bytes(), "draw it again"


def test_the_page_shows_the_description_that_is_tested() -> None:
    page = (ROOT / "docs" / "reference" / "simulation.md").read_text(encoding="utf-8")
    assert f"```yaml\n{TWO_PODS.read_text(encoding='utf-8')}```" in page


def test_the_page_explains_every_option_of_topology() -> None:
    page = (ROOT / "docs" / "reference" / "simulation.md").read_text(encoding="utf-8")
    assert not [option.short for option in options.OPTIONS if f"`{option.short}`" not in page]
    assert not [f"--{name}" for name in options.SWITCHES if f"`--{name}`" not in page]


def test_what_options_need_is_pinned() -> None:
    text = (ROOT / "requirements" / "simulation.txt").read_text(encoding="utf-8")
    assert all(f"{name}==" in text for name in ("networkx", "PyYAML", "infragraph"))
