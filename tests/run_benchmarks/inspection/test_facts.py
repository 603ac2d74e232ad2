"""The fact script on this very machine, and answers that are none."""

import os
import platform
import pwd
import shutil
import socket
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from run_benchmarks.errors import HostError
from run_benchmarks.hosts.base import Completed
from run_benchmarks.hosts.local import LocalHost
from run_benchmarks.inspection.facts import INFINIBAND, HostFacts, Questions, gather, processors
from run_benchmarks.plan.code_bundle import bundle


@pytest.fixture
def questions(tmp_path: Path) -> Questions:
    (tmp_path / "data with space").mkdir()
    (tmp_path / "device0").touch()
    (tmp_path / "device1").touch()
    return Questions(
        deploy=str(tmp_path / "it's code"),
        log_root=str(tmp_path / "logs"),
        code_dir=str(tmp_path / "it's code" / "abc"),
        python=sys.executable,
        packages=["pydantic", "no-such-package-anywhere"],
        master="localhost",
        names=["localhost", "no-such-host.invalid"],
        device_globs=[f"{tmp_path}/device*", "/dev/no-such-device*"],
        link_devices=[f"{tmp_path}/device0", "/dev/no-such-channel"],
        data=[str(tmp_path / "data with space"), "/no/such/data"],
    )


def ask(questions: Questions) -> HostFacts:
    return gather(LocalHost("localhost"), questions)


def test_this_machine(questions: Questions, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        facts = ask(questions)
        assert server.getsockname()[1] in facts.listening
    assert facts.hostname == platform.node()
    assert facts.cores == os.cpu_count()
    assert facts.user == pwd.getpwuid(os.getuid()).pw_name
    assert facts.kernel == f"{platform.system()} {platform.release()} {platform.machine()}"
    assert (facts.uid, facts.gid) == (os.getuid(), os.getgid())
    assert abs(facts.clock_offset) <= facts.clock_error + 0.05
    assert facts.clock_error >= 0
    assert facts.writable == {questions.deploy, questions.log_root}
    assert facts.unwritable == {}
    disk = shutil.disk_usage(tmp_path)
    assert all(0 < free <= disk.total for free in facts.free.values())
    assert facts.python == platform.python_version()
    assert facts.missing_packages == ("no-such-package-anywhere",)
    assert facts.resolves == {"localhost"}
    assert facts.networks == {name for _, name in socket.if_nameindex()}
    assert facts.devices == (str(tmp_path / "device0"), str(tmp_path / "device1"))
    assert [each for each in facts.link_devices if each != INFINIBAND] == [str(tmp_path / "device0")]
    assert (INFINIBAND in facts.link_devices) == Path(INFINIBAND).exists()
    assert facts.data == {str(tmp_path / "data with space")}
    assert facts.code is None and facts.code_listing == ()
    assert (tmp_path / "logs").stat().st_mode & 0o777 == 0o750


def test_listening_ports_without_ss(questions: Questions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small system has no iproute2; the kernel's own table answers."""
    ss = tmp_path / "bin" / "ss"
    ss.parent.mkdir()
    ss.write_text("#!/bin/sh\nexit 127\n")
    ss.chmod(0o755)
    monkeypatch.setenv("PATH", f"{ss.parent}:{os.environ['PATH']}")
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as server:
        facts = ask(questions)
        assert server.getsockname()[1] in facts.listening


@pytest.mark.parametrize(("ranges", "count"), [("0-3,8", 5), ("0", 1), ("0-511\n", 512), ("", 1)])
def test_processors_online(ranges: str, count: int) -> None:
    assert processors(ranges) == count


def test_code_is_known_by_its_content(questions: Questions, tmp_path: Path) -> None:
    """A folder of the right name proves nothing."""
    (tmp_path / "training").mkdir()
    (tmp_path / "training" / "units.py").write_text("GB = 1e9\n")
    code = bundle(tmp_path)
    code_dir = tmp_path / "it's code" / code.digest
    questions = replace(questions, code_dir=str(code_dir))
    code_dir.mkdir(parents=True)
    facts = ask(questions)
    assert facts.code not in (None, code.digest) and facts.code_listing == ("folder *.",)
    shutil.copytree(tmp_path / "training", code_dir / "training")
    facts = ask(questions)
    assert (facts.code, facts.code_listing) == (code.digest, ())
    (code_dir / "training" / "units.py").write_text("GB = 1e6\n")
    facts = ask(questions)
    assert facts.code != code.digest and facts.code_listing[0].endswith(" *./training/units.py")


def test_the_mode_of_a_folder_that_was_there_stays(questions: Questions) -> None:
    """A person may deploy to /tmp: with its mode taken away nobody else could work on that host."""
    Path(questions.deploy).mkdir()
    Path(questions.deploy).chmod(0o1777)
    assert questions.deploy in ask(questions).writable
    assert Path(questions.deploy).stat().st_mode & 0o7777 == 0o1777


def test_a_folder_that_cannot_be_made_is_told(questions: Questions, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    facts = ask(replace(questions, log_root=f"{tmp_path}/file/below"))
    assert facts.unwritable.keys() == {f"{tmp_path}/file/below"}
    assert "Not a directory" in facts.unwritable[f"{tmp_path}/file/below"]
    assert facts.writable == {questions.deploy}


def test_an_interpreter_that_is_none_is_told(questions: Questions) -> None:
    facts = ask(replace(questions, python="/no/such/python"))
    assert facts.python is None
    assert "not found" in (facts.no_python or "")
    facts = ask(replace(questions, python=None))
    assert (facts.python, facts.no_python) == (None, None)


def test_nothing_asked_is_nothing_answered(questions: Questions) -> None:
    facts = ask(replace(questions, master=None, names=(), device_globs=(), data=()))
    assert (facts.resolves, facts.devices, facts.data, facts.interface) == (frozenset(), (), frozenset(), None)


HUGE = f"clock_ns\t{'9' * 400}\nclock_ns\t{'9' * 400}\n"
MORE_DIGITS = f"clock_ns\t{'9' * 5000}\nclock_ns\t{'9' * 5000}\n"


@pytest.mark.parametrize(
    "answer", ["", "nonsense\n", "clock_ns\t1\nclock_ns\t2\n", "clock_ns\tN\nuid\tx\n", HUGE, MORE_DIGITS]
)
def test_an_answer_that_is_none_is_an_error_of_the_host(questions: Questions, answer: str) -> None:
    class Odd(LocalHost):
        def run(self, argv: Any, **_: Any) -> Completed:
            return Completed(argv=tuple(argv), exit_code=0, stdout=answer, stderr="", seconds=0.0)

    with pytest.raises(HostError, match="node1: unreadable answer to the fact script"):
        gather(Odd("node1"), questions)


YEARS = 10 * 365 * 86400


class Lying(LocalHost):
    """A host that answers as it is, but for one key; `changed` gets the answer's value and the number of its line."""

    def __init__(self, key: str, changed: Callable[[str, int], str]) -> None:
        super().__init__("node1")
        self._key, self._changed = key, changed

    def run(self, argv: Any, **more: Any) -> Completed:
        answer, seen, lines = super().run(argv, **more), 0, []
        for line in answer.stdout.splitlines():
            key, _, value = line.partition("\t")
            lines.append(f"{key}\t{self._changed(value, seen)}" if key == self._key else line)
            seen += key == self._key
        return replace(answer, stdout="\n".join(lines))


@pytest.mark.parametrize(
    ("key", "changed", "said"),
    [
        ("clock_ns", lambda ns, number: str(int(ns) + (YEARS * 10**9 if number == 0 else 0)), "its clock moved by -"),
        ("clock_ns", lambda ns, number: str(int(ns) + (YEARS * 10**9 if number else 0)), "its clock moved by 31536"),
        ("load", lambda *_: "nan", "load nan"),
        ("load", lambda *_: "inf", "load inf"),
        ("load", lambda *_: "-1", "load -1"),
        ("online", lambda *_: "0-999999999999", "1000000000000 processors"),
    ],
)
def test_a_host_does_not_choose_its_own_error_load_or_size(
    questions: Questions, key: str, changed: Callable[[str, int], str], said: str
) -> None:
    with pytest.raises(HostError, match=f"unreadable answer to the fact script .*{said}"):
        gather(Lying(key, changed), questions)


def test_a_clock_that_is_wrong_is_wrong_by_what_its_host_says(questions: Questions) -> None:
    facts = gather(Lying("clock_ns", lambda ns, _: str(int(ns) + 90 * 10**9)), questions)
    assert facts.clock_offset == pytest.approx(90, abs=1) and 0 <= facts.clock_error < 10
