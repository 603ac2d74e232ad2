"""The budgets of the test files: the order of the files, and what happens to one that takes too long."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.budgets import FILE, OPTION, SHORT_OPTION, is_long, read
from tests.imports import loads

ROOT = Path(__file__).resolve().parents[1]
CONFTEST = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
import pytest
from tests.budgets import OPTION, Budgets

def pytest_addoption(parser):
    parser.addoption(OPTION, action="store_true")

def pytest_configure(config):
    seconds = {{"default": 0.2, "test_slow.py": 0.4, "test_beside.py": 0.1, "test_after.py": 0.1}}
    config.pluginmanager.register(Budgets(seconds, checks=config.getoption(OPTION), slack=0.5))
"""


@pytest.mark.parametrize(
    ("sleeps", "said", "exit_code"),
    [(0.0, "", 0), (0.5, "over budget: test_slow.py: ", 0), (2.6, "FAILED test_slow.py: far over", 1)],
    ids=["within", "over", "far over"],
)
def test_a_file_that_takes_too_long(tmp_path: Path, sleeps: float, said: str, exit_code: int) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_quick.py").write_text("def test_it(): pass\n")
    (tmp_path / "test_slow.py").write_text(f"import time\ndef test_it(): time.sleep({sleeps})\n")
    argv = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path)]
    result = subprocess.run([*argv, OPTION], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert result.returncode == exit_code, result.stdout
    assert said in result.stdout and ("over budget" in result.stdout) is bool(said)
    assert result.stdout.index("test_slow.py::") < result.stdout.index("test_quick.py::"), "the longest first"


def test_on_a_busy_machine_all_files_take_longer(tmp_path: Path) -> None:
    """A file that takes six times its budget is not far over it where the others take nine times theirs."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    for name, seconds in (("slow", 2.6), ("beside", 0.9), ("after", 0.9)):
        (tmp_path / f"test_{name}.py").write_text(f"import time\ndef test_it(): time.sleep({seconds})\n")
    argv = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path)]
    result = subprocess.run([*argv, OPTION], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert result.returncode == 0 and "over budget: test_slow.py: " in result.stdout, result.stdout
    assert "far over" not in result.stdout


def test_the_files_that_spend_most_cpu_are_named(tmp_path: Path) -> None:
    """Also what the children of a test spend, and with several workers."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    busy = "import time; end = time.process_time() + 1.5\nwhile time.process_time() < end: pass\n"
    (tmp_path / "busy.py").write_text(busy)
    (tmp_path / "test_idle.py").write_text("import time\ndef test_it(): time.sleep(0.1)\n")
    child = "subprocess.run([sys.executable, 'busy.py'], check=True)"
    (tmp_path / "test_busy.py").write_text(f"import subprocess, sys\ndef test_it(): {child}\n")
    argv = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path)]
    for workers in ("0", "2"):
        ended = subprocess.run(
            [*argv, OPTION, "-n", workers], capture_output=True, text=True, check=False, cwd=tmp_path
        )
        said = [line for line in ended.stdout.splitlines() if line.startswith("CPU: ")]
        assert len(said) == 3 and said[0].startswith("CPU: test_busy.py: "), ended.stdout
        assert 1 <= float(said[0].split()[2]) <= 30 and any(line.startswith("CPU: test_idle.py: ") for line in said)


def test_what_ends_with_the_last_test_is_not_its_own(tmp_path: Path) -> None:
    """A shared process that ends when the session does, such as the engine of the hosts."""
    busy = "import time; end = time.process_time() + 1.5\nwhile time.process_time() < end: pass\n"
    fixture = """
@pytest.fixture(scope="session")
def shared():
    import subprocess
    busy = subprocess.Popen([sys.executable, "busy.py"])
    yield
    busy.wait()
"""
    (tmp_path / "conftest.py").write_text(CONFTEST + fixture)
    (tmp_path / "busy.py").write_text(busy)
    (tmp_path / "test_it.py").write_text("def test_it(shared): pass\n")
    argv = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path)]
    ended = subprocess.run([*argv, OPTION], capture_output=True, text=True, check=False, cwd=tmp_path)
    said = [line for line in ended.stdout.splitlines() if line.startswith("CPU: ")]
    assert said[0].startswith("CPU: what tests share: "), ended.stdout
    assert float(said[1].split()[2]) < 1


def test_the_short_tests_are_those_of_files_within_the_default_budget() -> None:
    """A file with a larger budget is not even imported, as tests/performance/test_smoke.py would be for seconds."""
    argv = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "tests/performance"]
    ended = subprocess.run([*argv, "--no-torch", SHORT_OPTION], capture_output=True, text=True, check=True, cwd=ROOT)
    collected = {Path(line.partition("::")[0]) for line in ended.stdout.splitlines() if "::" in line}
    files = [
        file.relative_to(ROOT) for file in (ROOT / "tests/performance").glob("test_*.py") if not loads(file, "torch")
    ]
    assert collected == {file for file in files if not is_long(file)} < set(files)


def test_each_file_of_the_table_is_there() -> None:
    assert [name for name in read() if name != "default" and not (ROOT / name).is_file()] == []


def test_a_table_without_default_or_with_no_number_is_refused(tmp_path: Path) -> None:
    file = tmp_path / FILE.name
    for text in ("[seconds]\n", "[seconds]\ndefault = 1\nx = 'a'\n", "[seconds]\ndefault = -1\n"):
        file.write_text(text)
        with pytest.raises(ValueError, match="wants positive seconds"):
            read(file)
