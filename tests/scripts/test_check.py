"""make test and make lint end at a Ctrl-C, whatever the step that ran then makes of it; lint and images beside tests.

A shell cannot catch a signal that was ignored when it began: tests/conftest.py sees to that under nohup.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

CHECK = Path(__file__).resolve().parents[2] / "scripts" / "check.sh"
CATCHES = "#!/bin/sh\ntrap 'echo caught; exit 2' INT TERM HUP\necho begun\nsleep 30 >/dev/null & wait $!\n"


@pytest.mark.parametrize(
    ("sent", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)], ids=lambda value: value
)
def test_no_step_follows_one_that_catches_a_signal(sent: signal.Signals, exit_code: int, tmp_path: Path) -> None:
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    for name in ("ruff", "mypy", "lint-imports"):
        (bin_folder / name).write_text(CATCHES)
        (bin_folder / name).chmod(0o755)
    command = ["bash", str(CHECK), str(tmp_path), "lint"]
    check = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert check.stdout is not None
        while check.stdout.readline().strip() != "begun":
            pass
        os.killpg(check.pid, sent)  # as a terminal does
        rest, _ = check.communicate(timeout=200)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(check.pid, signal.SIGKILL)
    assert check.returncode == exit_code
    assert rest.count("caught") == 1 and "begun" not in rest and "== ruff format" not in rest


def test_the_tests_pass_where_signals_are_ignored(tmp_path: Path) -> None:
    """As under nohup, and in the background of a shell without job control."""
    tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__, "-k", "no_step_follows"]
    command = ["env", "--ignore-signal=INT,HUP", *tests, f"--basetemp={tmp_path / 'inner'}"]
    result = subprocess.run(command, cwd=CHECK.parents[1], capture_output=True, text=True, timeout=200, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


# Stands for the Python of the virtual environment: what makes images waits or fails, a session of tests waits for them.
PYTHON = """#!/bin/sh
case "$*" in
*needs | -c*) ;;
*base-image) {images} ;;
*-m\\ pytest*)
    echo "a session of $*"
    case "$*" in *--wait-for-images=*) ;; *) exit 9 ;; esac
    made=$(echo "$*" | sed 's/.*--wait-for-images=\\([^ ]*\\).*/\\1/')
    echo "$made" >{folder}/made
    [ -f $made/pid ] || exit 8
    while [ ! -f $made/code ]; do sleep 0.05; done
    exit $(cat $made/code)
    ;;
esac
"""


def whole(folder: Path, images: str) -> list[str]:
    """The command line of make test with programs that do nothing, and `images` in the place of the base image."""
    bin_folder = folder / "bin"
    bin_folder.mkdir()
    for name in ("ruff", "mypy", "lint-imports", "python"):
        text = PYTHON.format(images=images, folder=folder) if name == "python" else "#!/bin/sh\n"
        (bin_folder / name).write_text(text)
        (bin_folder / name).chmod(0o755)
    return ["bash", str(CHECK), str(folder), "test"]


@pytest.mark.parametrize(("images", "exit_code"), [("sleep 0.5", 0), ("echo 'no mirror'; exit 3", 1)])
def test_images_are_made_beside_the_tests(images: str, exit_code: int, tmp_path: Path) -> None:
    result = subprocess.run(whole(tmp_path, images), capture_output=True, text=True, timeout=200, check=False)
    assert result.returncode == exit_code, result.stdout
    assert result.stdout.count("a session of") == 2, result.stdout
    begin, _, summary = result.stdout.partition("== images")
    assert "made in" in summary and "made in" not in begin, "their log stands behind the tests that ran beside them"
    assert ("no mirror" in summary) is bool(exit_code)
    assert f"{'FAILED' if exit_code else 'ok    '} images" in summary
    assert not Path((tmp_path / "made").read_text().strip()).exists()


@pytest.mark.parametrize("code", [0, 1])
def test_lint_runs_beside_the_tests_and_counts(code: int, tmp_path: Path) -> None:
    """mypy ends after the tests have begun here; what it says stands in one piece, and fails the whole."""
    command = whole(tmp_path, "true")
    mypy = f"echo 'an error of types'; while [ ! -f {tmp_path}/made ]; do sleep 0.05; done; exit {code}"
    (tmp_path / "bin/mypy").write_text(f"#!/bin/sh\n{mypy}\n")
    result = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert result.returncode == code, result.stdout
    assert "an error of types\n\n== import contracts" in result.stdout
    begin, _, summary = result.stdout.rpartition("== tests, one by one")
    assert "== import contracts" in begin, "what compares times has the machine to itself"
    assert f"{'FAILED' if code else 'ok    '} mypy " in summary and "ok     ruff format" in summary


@pytest.mark.parametrize("code", [0, 1])
def test_make_quick_lints_beside_its_tests(code: int, tmp_path: Path) -> None:
    """Each waits for the other here."""
    (tmp_path / "bin").mkdir()
    wait = f"while [ ! -f {tmp_path}/%s ]; do sleep 0.05; done"
    programs = {
        "mypy": f"touch {tmp_path}/types; {wait % 'tests'}; echo 'an error of types'; exit {code}",
        "python": f"touch {tmp_path}/tests; {wait % 'types'}",
    }
    for name in ("ruff", "lint-imports", *programs):
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{programs.get(name, '')}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    command = ["bash", str(CHECK), str(tmp_path), "quick"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert result.returncode == code, result.stdout
    assert "an error of types\n\n== import contracts" in result.stdout
    assert f"{'FAILED' if code else 'ok    '} mypy " in result.stdout and "ok     quick tests" in result.stdout


def test_images_that_are_being_made_end_at_a_ctrl_c(tmp_path: Path) -> None:
    command = whole(tmp_path, f"echo $$ >{tmp_path}/pid; exec sleep 60")
    check = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert check.stdout is not None
        while not check.stdout.readline().startswith("a session of"):
            pass
        while not (tmp_path / "made").exists() or not (tmp_path / "pid").exists():
            time.sleep(0.05)
        os.killpg(check.pid, signal.SIGINT)
        check.communicate(timeout=200)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(check.pid, signal.SIGKILL)
    assert check.returncode == 130
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
    assert not Path((tmp_path / "made").read_text().strip()).exists()


@pytest.mark.parametrize(("package", "code"), [("topology", 0), ("no_such_package", 2)])
def test_one_package(package: str, code: int, tmp_path: Path) -> None:
    """PACKAGE= names a folder below tests/; one that is not there is refused with what is allowed."""
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin" / "python"
    python.write_text('#!/bin/sh\necho "called with $*"\n')
    python.chmod(0o755)
    command = ["bash", str(CHECK), str(tmp_path), "package", package]
    result = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert result.returncode == code
    if code:
        assert "no folder below tests/" in result.stderr and " simulation/topology " in result.stderr
    else:
        assert "tests/simulation/topology" in result.stdout and "not nightly" in result.stdout


TESTS_OF_A_BUSY_MACHINE = """
from pathlib import Path

MARK = Path(__file__).with_name("ran_before")


def test_that_passes() -> None: ...


def test_by_chance() -> None:
    before = MARK.exists()
    MARK.touch()
    assert before
"""


BROKEN = "\n\ndef test_that_is_broken() -> None:\n    raise AssertionError\n"
MANY_BROKEN = "".join(f"\n\ndef test_{number}() -> None:\n    raise AssertionError\n" for number in range(9))


@pytest.mark.parametrize(
    ("text", "again"),
    [(TESTS_OF_A_BUSY_MACHINE, 1), (TESTS_OF_A_BUSY_MACHINE + BROKEN, 2), (MANY_BROKEN, 0)],
    ids=["by chance", "one is broken", "many are broken"],
)
def test_what_failed_runs_once_more_alone_and_is_named(text: str, again: int, tmp_path: Path) -> None:
    """A test that fails twice fails the whole; more than eight failures are no chance and do not run again."""
    for folder in ("scripts", "bin", "tests/sample"):
        (tmp_path / folder).mkdir(parents=True)
    shutil.copy(CHECK, tmp_path / "scripts")
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    alone\n    nightly\n")
    (tmp_path / "bin" / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (tmp_path / "bin" / "python").chmod(0o755)
    (tmp_path / "tests/sample/test_some.py").write_text(text)
    command = ["bash", str(tmp_path / "scripts" / "check.sh"), str(tmp_path), "package", "sample"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=200, check=False)
    assert result.returncode == (again != 1), result.stdout + result.stderr
    assert (f"the {again} that failed, once more and alone" in result.stdout) is bool(again)
    assert ("\nALONE  tests/sample/test_some.py::test_by_chance\n" in result.stdout) is (again == 1)
    assert again == 0 or "test_that_passes" not in result.stdout.partition("once more and alone")[2]


def test_the_base_image_is_made_while_packages_are_installed(tmp_path: Path) -> None:
    """Each waits for the other here, and the checks come after both."""
    wait = "while [ ! -f %s ]; do sleep 0.05; done"
    programs = {
        "tests/cluster/setup.sh": "",
        "scripts/make_venv.sh": "",
        "scripts/install.sh": f"touch installing; {wait % 'image'}",
        "venv/bin/pip": "",
        "venv/bin/python": f'[ "$*" = "-m tests.cluster.images" ] && {wait % "installing"} && touch image',
        "scripts/check.sh": '[ -f image ] && [ -f venv/.installed-dev ] && echo "checked: $*"',
    }
    for name, text in programs.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    shutil.copytree(CHECK.parents[1] / "requirements", tmp_path / "requirements")
    shutil.copy(CHECK.parents[1] / "Makefile", tmp_path)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    command = ["timeout", "60", "make", "VENV=venv", "PACKAGE=", "test"]
    result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0 and "checked: venv test" in result.stdout, result.stdout + result.stderr
