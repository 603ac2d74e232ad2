"""Tests of hosts wait for images that are made beside others, and fail with what their making wrote."""

import subprocess
import sys
import threading
from pathlib import Path

from tests.beside import OPTION, Images

ROOT = Path(__file__).resolve().parents[1]
CONFTEST = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from pathlib import Path
from tests.beside import OPTION, Images

def pytest_addoption(parser):
    parser.addoption(OPTION, type=Path)

def pytest_configure(config):
    config.addinivalue_line("markers", "cluster: has hosts")
    config.pluginmanager.register(Images(config.getoption(OPTION)), "images")
"""
TESTS = """
import pytest

@pytest.mark.cluster
def test_of_hosts(): assert {code!r} == "0"

def test_of_none(): pass
"""


def making(folder: Path, command: str) -> subprocess.Popen[bytes]:
    """A process that stands for what makes the images."""
    (folder / "log").write_text("")
    process = subprocess.Popen(["sh", "-c", command], cwd=folder, stdin=subprocess.PIPE)
    (folder / "pid").write_text(f"{process.pid}\n")
    return process


def run(folder: Path, code: str) -> subprocess.CompletedProcess[str]:
    """A session of two tests, of which the first has hosts and asserts that their images were made."""
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_two.py").write_text(TESTS.format(code=code))
    options = ["--timeout=1", "-p", "no:cacheprovider", f"--rootdir={folder}", f"{OPTION}={folder}"]
    argv = [sys.executable, "-m", "pytest", *options, str(folder / "test_two.py")]
    return subprocess.run(argv, capture_output=True, text=True, check=False, cwd=folder)


def test_a_test_of_hosts_waits_outside_of_its_time_limit(tmp_path: Path) -> None:
    with making(tmp_path, "sleep 2; echo 0 >code"):
        result = run(tmp_path, "0")
    assert "2 passed" in result.stdout, result.stdout


def test_a_test_of_hosts_fails_with_what_the_making_wrote(tmp_path: Path) -> None:
    with making(tmp_path, "echo 'no mirror' >log; echo >>log; echo 3 >code"):
        result = run(tmp_path, "3")
    assert "1 passed, 1 error" in result.stdout, result.stdout
    assert "the images of its hosts could not be made: no mirror" in result.stdout


def test_one_that_was_killed_is_not_waited_for(tmp_path: Path) -> None:
    codes: list[int] = []
    with making(tmp_path, "read line") as process:
        waiting = threading.Thread(target=lambda: codes.append(Images(tmp_path).wait()))
        waiting.start()
        assert codes == []
        process.kill()
        process.wait()
        waiting.join(30)
    assert codes == [-1] and Images(tmp_path).last_line() == "it wrote nothing"
