"""The tables of `run.py check` on narrow and wide terminals: words stay whole."""

import pytest

from run_benchmarks.commands.check_view import show_reports
from run_benchmarks.console import terminal
from run_benchmarks.inspection.findings import Finding, HostReport

FOUND = Finding(
    host="gpu-node-017",
    subject="container toolkit",
    found="no runtime nvidia in the engine's configuration",
    expected="the NVIDIA container toolkit",
    action="install nvidia-container-toolkit, run nvidia-ctk runtime configure, restart the engine",
)


@pytest.mark.parametrize(("width", "is_table"), [(80, False), (140, True), (60, False)])
def test_words_of_a_finding_stay_whole(
    width: int, is_table: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(terminal, "CONSOLE", terminal._Console(highlight=False, width=width))
    show_reports({FOUND.host: HostReport(host=FOUND.host, findings=[FOUND])})
    text = capsys.readouterr().out
    cells = (FOUND.host, FOUND.subject, FOUND.found, FOUND.expected, FOUND.action)
    words = {word for cell in cells for word in cell.split() if len(word) <= terminal.LONGEST_WHOLE}
    assert not [word for word in words if word not in text], text
    assert ("│" in text.rpartition("severity")[2]) is is_table
    assert max(map(len, text.splitlines())) <= width
    if not is_table:
        assert "  what to do: install nvidia-container-toolkit, run" in text, "the longest words, too"
