"""What is done on a host takes effect, and the answer is lost: it is asked again, and nothing is done twice."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.run_benchmarks.local_run import LIGHT_ONE, Run

# run.py, where the answers of the first calls of these functions of rounds.round are lost.
ANSWERS_LOST = """
import sys
import time
from pathlib import Path
from run_benchmarks.errors import LinkLostError
from run_benchmarks.rounds import round as module
names, sys.argv[1:] = sys.argv[1].split(), sys.argv[2:]
def lost(name):
    action, calls = getattr(module, name), []
    def first_lost(*arguments, **options):
        answer = action(*arguments, **options)
        calls.append(name)
        if len(calls) == 1:
            if name == "create_tasks":  # the monitor that it started writes before it is ended
                file = Path(arguments[0].plan.log_dir_host, "monitor.jsonl")
                until = time.monotonic() + 30
                while not file.exists() and time.monotonic() < until:
                    time.sleep(0.05)
            raise LinkLostError("localhost", f"the answer of {name} is lost")
        return answer
    setattr(module, name, first_lost)
for name in names:
    lost(name)
from run_benchmarks.commands.cli import main
main()
"""
NAMES = ("prepare_node", "create_tasks", "start_workload", "collect_node")


@pytest.mark.nightly
def test_a_round_whose_answers_are_lost_passes_once(tmp_path: Path, root: Path) -> None:
    run = Run(tmp_path / "run", LIGHT_ONE, root)
    argv = [sys.executable, "-c", ANSWERS_LOST, " ".join(NAMES), *run.argv[2:]]
    answer = subprocess.run(argv, cwd=root, capture_output=True, text=True, timeout=200)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert run.result is not None
    record = json.loads((run.result / "ONE/round1/round.json").read_text())
    assert [remark["detail"] for remark in record["integrity"]["remarks"] if remark["kind"] == "outage"] == [
        f"localhost: the answer of {name} is lost" for name in NAMES
    ]
    assert record["warnings"] == [], "nothing is said twice"
    log = (run.result / "ONE/round1/localhost_noderank0/rank0.out.log").read_text()
    assert log.count("TRAIN_START") == 1
    assert list(tmp_path.rglob("supervisor.json")) == []
