"""A run is named alone: its journal says from which files it was begun and what its command line changed."""

import contextlib
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from protocol.baseline_file import CaseBaseline, save
from run_benchmarks.commands import cli, starting
from run_benchmarks.commands import status as run_status
from run_benchmarks.commands.run_reference import existing_run, find_run, settings_of
from run_benchmarks.console.command_line import RUN_PY, own_command, run_word
from run_benchmarks.errors import InputProblems
from run_benchmarks.plan.recorded import recorded_cases
from run_benchmarks.session.preparation import PreparedRun, prepare
from run_benchmarks.session.run_folder import owner_of
from run_benchmarks.session.session import Session
from run_benchmarks.settings.changes import Changes
from run_benchmarks.settings.settings import Settings, load_settings
from run_benchmarks.state.interruption import Interruption
from run_benchmarks.state.journal import BaselineTarget, Journal, JournalError, RoundStarted, RunStarted
from run_benchmarks.state.vouching import KEY_FILE, is_own, signed
from tests.run_benchmarks import calling
from tests.run_benchmarks.conftest import TEST, Load

RUN = "run20261121191924"
# What a shell of stock Debian searches: it has python3, and no python.
STOCK = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/nonexistent", "LC_ALL": "C"}
CHANGES = Changes(sets=("ONE.overrides.seed=7", "STALL_LIMIT=60"), cases=("O*",), repeat=3)


def prepared(settings: Settings, folder: Path) -> PreparedRun:
    """The run as a controller prepares it."""
    return prepare(settings, RUN).named(RUN, owner_of(folder.parent))


@pytest.fixture
def folder(load: Load, tmp_path: Path) -> Path:
    """The result folder of a run that was begun with CHANGES and whose controller was killed."""
    files = tmp_path / "my files"
    files.mkdir()
    results = tmp_path / "all results"
    load(f"{TEST}TWO = dict(ONE)\nCASES += ['TWO']\nFLAGPERF_LOG_PATH_HOST = {str(results)!r}\n")
    for name in ("cluster_conf.py", "test_conf.py"):
        (tmp_path / name).rename(files / name)
    settings = load_settings(files / "cluster_conf.py", files / "test_conf.py", CHANGES)
    folder = results / RUN
    folder.mkdir(parents=True)
    session = Session(prepared(settings, folder), folder, Interruption(""), [])
    Journal(folder).append(session._started())
    session._record_settings()
    (folder / "run.log").write_text("the log\n")
    return folder


def call(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, str(RUN_PY), *words]
    return subprocess.run(argv, capture_output=True, text=True, timeout=200, cwd=cwd)


def call_here(*words: str, cwd: Path) -> calling.Answer:
    """In this process, which has the product loaded already."""
    with contextlib.chdir(cwd):
        return calling.call(*words)


def paste(command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a printed command as a person would: pasted into a shell of stock Debian, in whatever folder."""
    environment = STOCK | {"XDG_STATE_HOME": os.environ["XDG_STATE_HOME"]}
    return subprocess.run(
        ["/bin/sh", "-c", command], env=environment, capture_output=True, text=True, timeout=200, cwd=cwd
    )


def test_the_journal_has_what_the_command_line_changed(folder: Path) -> None:
    assert Journal(folder).read().started.changes == CHANGES
    settings = settings_of(folder, None, None)
    assert (settings.test.STALL_LIMIT, list(settings.cases)) == (60, ["ONE"])
    assert settings.cases["ONE"].repeat == 3 and settings.cases["ONE"].overrides == {"seed": 7}
    assert prepared(settings, folder).digest() == Journal(folder).read().started.plan_digest


def test_a_journal_of_before_there_were_changes_is_read(folder: Path) -> None:
    text = (folder / "journal.jsonl").read_text()
    before, _, after = text.partition(',"changes":')
    (folder / "journal.jsonl").write_text(before + after[after.index("}") + 1 :])
    assert Journal(folder).read().started.changes is None
    with pytest.raises(InputProblems, match="name your own file with --cluster-conf"):  # nor had it a code
        settings_of(folder, None, None)
    files = folder.parent.parent / "my files"
    assert settings_of(folder, files / "cluster_conf.py", files / "test_conf.py").changes == Changes()


def test_a_run_is_found_by_name_and_by_path(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    test_conf, default = tmp_path / "my files" / "test_conf.py", tmp_path / "none.py"
    assert find_run(RUN, test_conf, default) == folder
    assert find_run(str(folder), None, default) == folder
    with pytest.raises(InputProblems, match=rf"RUN '{RUN}': expected the name of a run in "):
        find_run(RUN, None, default)
    monkeypatch.chdir(folder.parent)
    assert find_run(RUN, None, default) == folder == find_run(f"./{RUN}", None, default)
    with pytest.raises(InputProblems, match=rf"did you mean '{RUN}'"):
        find_run(RUN[:-1] + "5", None, default)


def test_files_that_are_gone_are_named_with_the_option_that_replaces_them(folder: Path, tmp_path: Path) -> None:
    cluster = tmp_path / "my files" / "cluster_conf.py"
    moved = cluster.rename(tmp_path / "moved.py")
    with pytest.raises(InputProblems) as caught:
        settings_of(folder, None, None)
    said = "the run was begun with {}, which is no longer there; name the file with --cluster-conf"
    assert [str(problem) for problem in caught.value.problems] == [f"{folder}/journal.jsonl: {said.format(cluster)}"]
    assert settings_of(folder, moved, None).cluster_file == moved


@pytest.mark.parametrize("words", [("status",), ("attach",), ("resume",), ("clean",)])
def test_commands_take_the_run_alone(words: tuple[str, ...], folder: Path, tmp_path: Path) -> None:
    with (tmp_path / "my files" / "test_conf.py").open("a") as file:
        file.write("SHM_SIZE = 'spoilt'\n")
    answer = call_here(*words, str(folder), cwd=tmp_path)
    if words[0] in ("status", "attach"):  # these need no file
        assert answer.exit_code in (0, 1) and "spoilt" not in answer.stderr, answer
        assert "killed" in answer.stdout or "the log" in answer.stdout
    else:
        assert answer.exit_code == 2 and "my files/test_conf.py: SHM_SIZE = 'spoilt'" in answer.stderr


def spoil(folder: Path, change: Callable[[RunStarted], RunStarted]) -> Path:
    """Replace the journal by one whose start is changed and whose cluster_conf.py leaves a mark; returns the mark."""
    mark, evil = folder.parent / "executed", folder / "cluster_conf.py"
    evil.write_text(f"open({str(mark)!r}, 'w')\nHOSTS = ['localhost']\n")
    started = Journal(folder).read().started.model_copy(update={"cluster_conf": str(evil), "test_conf": str(evil)})
    (folder / "journal.jsonl").unlink()
    Journal(folder).append(change(started))
    return mark


def by_another_key(started: RunStarted) -> RunStarted:
    """As the controller of somebody else signs it."""
    with tempfile.TemporaryDirectory() as state, pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", state)
        other = signed(started)
    assert other.hmac_sha256 not in (None, started.hmac_sha256)
    return other


def without_a_code(started: RunStarted) -> RunStarted:
    """As a controller without a state folder leaves it."""
    return started.model_copy(update={"hmac_sha256": None})


@pytest.mark.parametrize("word", ["resume", "clean"])
@pytest.mark.parametrize(
    "change", [without_a_code, by_another_key, lambda started: started], ids=["no code", "another key", "edited"]
)
def test_nothing_in_a_received_folder_is_executed(
    folder: Path, tmp_path: Path, change: Callable[[RunStarted], RunStarted], word: str
) -> None:
    mark = spoil(folder, change)
    answer = call_here(word, str(folder), cwd=tmp_path)
    assert answer.exit_code == 2 and not mark.exists(), answer
    for said in (
        "nothing shows that you began this run",
        "file with --cluster-conf",
        "file with --test-conf",
        "STALL_LIMIT=60",
    ):
        assert said in answer.stderr


def test_a_folder_under_another_runs_name_is_not_ones_own(folder: Path) -> None:
    renamed = folder.rename(folder.with_name(f"{RUN[:-1]}9"))
    assert not is_own(renamed, Journal(renamed).read().started)


def test_a_folder_that_anybody_may_write_is_not_ones_own(folder: Path) -> None:
    started = Journal(folder).read().started
    assert is_own(folder, started)
    folder.chmod(0o777)
    assert not is_own(folder, started)


@pytest.mark.skipif(os.geteuid() != 0, reason="chown needs root")
def test_another_users_folder_or_key_is_not_ones_own(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = Journal(folder).read().started
    os.chown(folder, 65534, 65534)
    assert not is_own(folder, started)
    os.chown(folder, 0, 0)
    monkeypatch.setenv("XDG_STATE_HOME", str(folder.parent / "state"))
    mine, key = signed(started), folder.parent / "state" / KEY_FILE
    assert is_own(folder, mine) and not is_own(folder, started)
    assert (key.stat().st_mode & 0o777, key.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    key.chmod(0o644)
    assert not is_own(folder, mine)


def test_a_received_run_folder_is_cleaned_with_the_conf_files_that_are_named(folder: Path, tmp_path: Path) -> None:
    files = tmp_path / "my files"
    words = ["--cluster-conf", str(files / "cluster_conf.py"), "--test-conf", str(files / "test_conf.py")]
    mark = spoil(folder, without_a_code)
    answer = call_here("clean", str(folder), *words, cwd=tmp_path)
    assert answer.exit_code == 2 and "what it sets is not applied: write it in the file" in answer.stderr, answer
    mark = spoil(folder, lambda started: started.model_copy(update={"changes": None}))
    answer = call_here("clean", str(folder), *words, cwd=tmp_path)
    assert (answer.exit_code, answer.stdout) == (0, "localhost: removed nothing\n") and not mark.exists(), answer


def test_a_received_journal_names_no_file_to_write(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--save-baseline replaces a file at the end of a run."""
    target = BaselineTarget(file=folder.parent / "victim", overwrite=True)
    mine = signed(Journal(folder).read().started.model_copy(update={"save_baseline": target}))
    assert starting._kept_target(folder, mine) == target
    assert starting._kept_target(folder, by_another_key(mine)) is None
    assert f"no baseline is saved to {target.file}: nothing shows that you began this run" in capsys.readouterr().err


def test_what_a_received_folder_says_does_not_control_the_terminal(folder: Path, tmp_path: Path) -> None:
    evil = "\x1b]52;c;YQ==\x07\u202e"
    Journal(folder).append(RoundStarted(case=evil, round=1, attempt=1, master_port=1, hosts=[]))
    (folder / "run.log").write_text(f"{evil}\n")
    for words in ("status", "attach"):
        answer = call_here(words, str(folder), cwd=tmp_path)
        assert "]52;c" in answer.stdout and not set(answer.stdout) & set("\x1b\x07\u202e"), answer


def test_a_folders_token_is_a_token(folder: Path, tmp_path: Path) -> None:
    (folder.parent / ".owner").write_text("x --privileged\n")
    answer = call_here("clean", str(folder), cwd=tmp_path)
    assert answer.exit_code == 2 and "8 hexadecimal digits" in answer.stderr, answer


def test_clean_of_a_run_that_was_begun_with_changes(folder: Path, tmp_path: Path) -> None:
    answer = call_here("clean", str(folder), cwd=tmp_path)
    assert (answer.exit_code, answer.stdout) == (0, "localhost: removed nothing\n"), answer


def test_a_resume_compares_with_the_files_that_are_given(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.py"
    other.write_text((tmp_path / "my files" / "test_conf.py").read_text() + "TIME_LIMIT = 5\n")
    answer = call("resume", str(folder), "--test-conf", str(other), cwd=tmp_path)
    assert answer.returncode == 2 and "the plan changed since the run started" in answer.stderr
    assert str(other) in answer.stderr


def test_a_resume_refuses_settings_that_somebody_edited_in_its_folder(folder: Path, tmp_path: Path) -> None:
    (kept,) = (folder / "cases").glob("*.json")
    text = kept.read_text()
    assert '"seed":7' in text.replace(" ", "")
    kept.chmod(0o640)
    kept.write_text(text.replace(": 7", ": 8").replace(":7", ":8"))
    answer = call_here("resume", str(folder), cwd=tmp_path)
    assert isinstance(answer.exception, JournalError), answer
    assert "the plan changed since the run started" in answer.complaint


def test_a_received_folders_settings_are_not_those_of_a_resume(folder: Path) -> None:
    """They hold paths of the hosts, and its plan's hash is whatever its sender wrote."""
    files, past = folder.parent.parent / "my files", Journal(folder).read()
    settings = load_settings(files / "cluster_conf.py", files / "test_conf.py", CHANGES)
    (kept,) = (folder / "cases").glob("*.json")
    kept.chmod(0o640)
    kept.write_text(kept.read_text().replace(": 7", ": 8").replace(":7", ":8"))
    edited = prepare(settings, RUN, recorded_cases(folder)).named(RUN, owner_of(folder.parent))
    past.started = without_a_code(past.started.model_copy(update={"plan_digest": edited.digest()}))
    assert edited.digest() != prepared(settings, folder).digest()
    with pytest.raises(JournalError, match="the plan changed since the run started"):
        starting._as_begun(settings, folder, past)


def test_a_resume_is_compared_with_the_baseline_that_it_began_with(folder: Path, tmp_path: Path) -> None:
    good = tmp_path / "good.json"
    of_one = CaseBaseline(
        case="ONE", model="network", framework="pytorch", device="", run="r", conditions={}, entries={}
    )
    save([of_one], good)
    test_conf = tmp_path / "my files" / "test_conf.py"
    test_conf.write_text(f"{test_conf.read_text()}BASELINE = {str(good)!r}\n")
    answer = call_here("resume", str(folder), cwd=tmp_path)
    assert isinstance(answer.exception, JournalError) and "it began with no BASELINE; " in answer.complaint, answer
    assert f"now has BASELINE {good} (sha256 " in answer.complaint


def test_every_printed_command_runs_as_printed(folder: Path) -> None:
    """From another folder, in a shell of stock Debian, which has no `python`."""
    printed = [line.strip() for line in run_status.ways_on([folder]) if line.startswith("  ")]
    assert [shlex.split(line)[2] for line in printed] == ["resume", "clean"]
    printed += [own_command(word, run_word(folder)) for word in ("status", "attach")]
    assert all(Path(shlex.split(line)[0]).is_absolute() and "python " not in line.split("/")[0] for line in printed)
    for line in reversed(printed[1:]):  # all but resume, which runs for minutes
        answer = paste(line, cwd=Path("/"))
        assert answer.returncode in (0, 1) and "not found" not in answer.stderr, answer
    answer = paste(printed[0].replace(" resume ", " resume --help "), cwd=Path("/"))
    assert answer.returncode == 0 and "Continue a run" in answer.stdout


def test_a_path_that_needs_quotes_is_quoted(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setattr(sys, "executable", "/with space/python3")
    command = own_command("clean", run_word(folder))
    assert shlex.split(command) == ["/with space/python3", str(RUN_PY), "clean", str(folder)]
    assert command.startswith("'/with space/python3' ")


def test_no_text_of_ours_tells_to_call_python() -> None:
    """Stock Debian has python3 alone."""
    texts = [path.read_text(encoding="utf-8") for path in Path(cli.__file__).parent.rglob("*.py")]
    assert not any("`python run_benchmarks" in text or '"python run_' in text for text in texts)


def test_help_by_its_short_name_for_every_command() -> None:
    for words in ([], ["run"], ["clean"]):
        answer = calling.call(*words, "-h")
        assert answer.exit_code == 0 and "--help" in answer.stdout


@pytest.mark.parametrize(
    ("name", "is_run"),
    [
        ("run20261121191924", True),
        ("run20261121191924\n", False),
        ("run202611211919241", False),
        ("xrun20261121191924", False),
        ("run" + "\u0661" * 14, False),
    ],
)
def test_a_name_that_is_no_runs_is_none_even_where_there_is_such_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, is_run: bool
) -> None:
    """It becomes part of a path that clean removes."""
    folder = tmp_path / "result" / name
    folder.mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert existing_run(name, None, tmp_path / "test_conf.py") == (folder if is_run else None)
    assert existing_run(str(folder), None, tmp_path / "test_conf.py") == (folder if is_run else None)
