"""A further attempt meets nothing of an earlier one; stacks are told from the rest of a log."""

from __future__ import annotations

import faulthandler
import sys
import threading
from pathlib import Path

from run_benchmarks.plan.attempts import attempt_plan, folder_name
from run_benchmarks.rounds.stall import stacks
from run_benchmarks.session.preparation import prepare
from tests.run_benchmarks.conftest import Load


def test_names_and_folders_of_a_further_attempt_are_its_own(load: Load) -> None:
    plan = prepare(load(), "run20261121191924").plan.cases[0].rounds[0]
    assert attempt_plan(plan, 1) is plan
    first, second, third = (attempt_plan(plan, number).nodes[0] for number in (1, 2, 3))
    assert len({node.workload.name for node in (first, second, third)}) == 3
    assert len({node.log_dir_host for node in (first, second, third)}) == 3
    assert second.log_dir_host.endswith("/round1_try2/localhost_noderank0") == (folder_name(1, 2) == "round1_try2")
    for task in (second.workload, second.monitor):
        assert first.log_dir_host not in " ".join(task.argv) and second.log_dir_host in " ".join(task.argv)
        assert f"{second.log_dir_host}/workload.lock" in second.monitor.argv


def test_stacks_are_found_between_other_lines(tmp_path: Path) -> None:
    path = tmp_path / "log"
    held = threading.Event()
    thread = threading.Thread(target=held.wait)
    thread.start()
    try:
        with path.open("w") as file:
            file.write('[PerfLog] {"event": "X"}\nThread pool is warm\n')
            file.flush()
            running = len(sys._current_frames())  # under xdist its own thread is among them
            faulthandler.dump_traceback(file)
            file.write("bye\n")
    finally:
        held.set()
        thread.join()
    text = stacks(path.read_text())
    assert "bye" not in text and "PerfLog" not in text and "pool" not in text
    assert running >= 2 and text.count("most recent call first") == running and "test_stacks_are_found" in text
    assert stacks("nothing\n") == ""
