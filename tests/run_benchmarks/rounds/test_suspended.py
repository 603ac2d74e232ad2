"""A controller that is suspended while a host is asked something asks again, in every phase of a round."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.run_benchmarks.local_run import LIGHT_ONE, Run

# run.py, where the first command that these functions of rounds.round give stops its controller (SIGSTOP), which a
# process lets go on after SLEEP seconds. By then the deadline of that command, which is shorter here, has passed.
SUSPENDED = """
import sys
from run_benchmarks.hosts.local import LocalHost
from run_benchmarks.rounds import round as module
names, sys.argv[1:] = sys.argv[1].split(), sys.argv[2:]
SLEEP, DEADLINE = 5.8, 5.4
STOP = 'kill -STOP $PPID; setsid sh -c "sleep $0; kill -CONT $PPID" </dev/null >/dev/null 2>&1 & exec "$@"'
real, asleep = LocalHost.run, []
def run(host, argv, **options):
    if asleep:
        argv, options["deadline"] = ["sh", "-c", STOP, str(SLEEP), *argv], DEADLINE
        asleep.clear()
    return real(host, argv, **options)
LocalHost.run = run
def suspending(name):
    action, calls = getattr(module, name), []
    def first_suspended(*arguments, **options):
        calls.append(name)
        if len(calls) == 1:
            asleep.append(name)
        return action(*arguments, **options)
    setattr(module, name, first_suspended)
for name in names:
    suspending(name)
from run_benchmarks.commands.cli import main
main()
"""
NAMES = ("boot_of", "create_tasks", "note_changed_code")  # of preparation, launch and collection


@pytest.mark.nightly
def test_a_controller_that_was_suspended_in_each_phase_asks_again(tmp_path: Path, root: Path) -> None:
    run = Run(tmp_path / "run", LIGHT_ONE, root)
    argv = [sys.executable, "-c", SUSPENDED, " ".join(NAMES), *run.argv[2:]]
    answer = subprocess.run(argv, cwd=root, capture_output=True, text=True, timeout=200)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert answer.stdout.count("asked again, since the controller itself was suspended") == len(NAMES), answer.stdout
    assert run.result is not None
    record = json.loads((run.result / "ONE/round1/round.json").read_text())
    assert record["verdict"] == "pass"
    assert [each.partition(" for ")[0] for each in record["warnings"]] == ["the controller itself was suspended"]
    assert [each for each in record["integrity"]["remarks"] if each["kind"] == "outage"] == [], "the host answered"
