"""Nothing that a host sends reaches a terminal, run.log or the report as an order: on a real terminal and in a pipe."""

import io
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.printable import printable
from run_benchmarks.console.command_line import ROOT
from run_benchmarks.console.terminal import CONSOLE
from run_benchmarks.report.html import write_report
from run_benchmarks.results.records import Verdict
from tests.run_benchmarks.results.rounds import round_record, run_record

# Sets the clipboard; clears the screen; the same by C1; turns the reading round; goes back to the line's beginning.
EVIL = "\x1b]52;c;ZXZpbA==\x07\x1b[2J\x9b2J\x9d52;c;x\x9c\u202egnp.exe\u202c[red]\rFORGED\x00\x08\x7f"
ORDERS = re.compile("\x1b\\]|\x1b\\[2J|[\x80-\x9f\u202a-\u202e\u2066-\u2069\x00\x07\x08\x7f]|\rFORGED")
# Everything that writes to the console, with what a host really answered.
WRITER = """
import sys, time
from pathlib import Path
from run_benchmarks.console.console import LOG, complain, say
from run_benchmarks.console.terminal import CONSOLE, print_table, start_logging, stop_logging
from run_benchmarks.errors import HostError
from run_benchmarks.hosts.local import LocalHost
from run_benchmarks.console.progress import LiveProgress
evil = sys.argv[2]
start_logging("debug", Path(sys.argv[1]))
host = LocalHost("node1")
try:
    host.run(["sh", "-c", 'printf %s "$1" >&2; exit 3', "sh", evil.replace(chr(0), "")], deadline=10)
except HostError as error:
    LOG.error("%s", error)
    complain(str(error))
try:
    raise ValueError(evil)
except ValueError:
    LOG.exception("while %s", evil)
print_table(evil, ("case", evil), [(evil, "x")])
print_table("to a file", ("case",), [(evil,)], file=sys.stderr)
CONSOLE.print(evil, markup=False)
say(evil)
with LiveProgress(evil, 1, 1) as progress:
    LOG.info("under the live line")
    time.sleep(0.4)
    LOG.info("%s", progress.line())
stop_logging()
""".replace("sys.argv[2]", "sys.argv[2].encode('ascii').decode('unicode_escape')")


def written(tmp_path: Path, kind: str) -> bytes:
    ours, theirs = pty.openpty() if kind == "terminal" else os.pipe()
    argv = [sys.executable, "-c", WRITER, str(tmp_path / "run.log"), EVIL.encode("unicode_escape").decode()]
    environment = {**os.environ, "TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8", "COLUMNS": "200"}
    with subprocess.Popen(argv, stdout=theirs, stderr=theirs, cwd=ROOT, env=environment) as process:
        os.close(theirs)
        data = b""
        while True:
            try:
                chunk = os.read(ours, 1 << 16)
            except OSError:  # a terminal that its last writer closed
                break
            if not chunk:
                break
            data += chunk
    os.close(ours)
    assert process.returncode == 0, data.decode(errors="replace")
    return data


@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", ["pipe", "terminal"])
def test_text_of_a_host_cannot_control_the_terminal(kind: str, tmp_path: Path) -> None:
    screen = written(tmp_path, kind).decode("utf-8")
    log = (tmp_path / "run.log").read_text(encoding="utf-8")
    for text in (screen, log):
        assert "\\x1b]52;c;ZXZpbA==\\x07\\x1b[2J\\x9b2J" in text and "\\rFORGED" in text
        assert not ORDERS.search(text), ORDERS.search(text)
    assert "\x1b" not in log and "[red]" in screen
    assert screen.count("FORGED") >= 8


def test_the_report_shows_what_a_host_sent_and_holds_no_orders(tmp_path: Path) -> None:
    record = round_record(tmp_path / "files", reason=EVIL, warnings=[EVIL], verdict=Verdict.FAIL)
    page = write_report(tmp_path, run_record({EVIL: EVIL}, reason=EVIL), [record]).read_text(encoding="utf-8")
    assert "\\x1b]52;c;ZXZpbA==" in page
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", page)


@given(st.text(st.characters(exclude_categories=())))
def test_text_is_harmless_can_be_encoded_and_stays_as_it_is_where_it_was(text: str) -> None:
    safe = printable(text)
    safe.encode("utf-8")
    assert not ORDERS.search(safe) and "\r" not in safe and "\x1b" not in safe
    assert printable(safe) == safe
    plain = "".join(char for char in text if char.isprintable() or char in "\t\n")
    if text == plain:
        assert safe == text


def test_an_ordinary_text_stays() -> None:
    text = "[PerfLog]\tλ → 10 µs, 表, 👍🏽, é\n  second line"
    assert printable(text) == text and printable("a\r\nb") == "a\nb"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "gbk"])
def test_text_that_the_console_cannot_encode_ends_no_run(encoding: str) -> None:
    """A head node with another locale: what a host says comes as escapes, as far as its letters are not there."""
    writer = """
import sys
from run_benchmarks.console.console import LOG, guard_console, complain, say
from run_benchmarks.console.terminal import print_table, start_logging
guard_console()
start_logging("info", None)
evil = sys.argv[1].encode("ascii").decode("unicode_escape")
LOG.warning("%s", evil)
print_table(evil, ("case",), [(evil,)])
say(evil)
complain(evil)
"""
    text = "\u4f60\u597d \U0001f600 \xfc"
    answer = subprocess.run(
        [sys.executable, "-c", writer, text.encode("unicode_escape").decode()],
        cwd=ROOT,
        env={**os.environ, "PYTHONIOENCODING": encoding},
        capture_output=True,
    )
    assert answer.returncode == 0, answer.stderr
    expected = text.encode(encoding, "backslashreplace")
    assert answer.stdout.count(expected) == 4 and answer.stderr.count(expected) == 1


def test_a_defect_s_traceback_and_other_libraries_warnings_are_harmless() -> None:
    writer = """
import logging, sys, threading
from run_benchmarks.console.console import guard_console
guard_console()
evil = sys.argv[1].encode("ascii").decode("unicode_escape")
logging.getLogger("urllib3").warning("headers %s", evil)
def breaks():
    raise ValueError(evil)
for action in (sys.exit, breaks):
    thread = threading.Thread(target=action)
    thread.start()
    thread.join()
breaks()
"""
    argv = [sys.executable, "-c", writer, EVIL.encode("unicode_escape").decode()]
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8"}
    answer = subprocess.run(argv, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert answer.returncode == 1 and answer.stderr.count("FORGED") == 3 and answer.stderr.count("Traceback") == 2
    assert not ORDERS.search(answer.stderr)


class ClosedPipe(io.StringIO):
    def write(self, text: str, /) -> int:
        raise BrokenPipeError(text)


def test_what_a_closed_pipe_did_not_take_is_not_printed_later(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.MonkeyPatch.context() as patched, pytest.raises(BrokenPipeError):
        patched.setattr(sys, "stdout", ClosedPipe())
        CONSOLE.print("for nobody")
    CONSOLE.print("for the reader")
    assert capsys.readouterr().out.split() == ["for", "the", "reader"]
