"""A further attempt meets nothing of an earlier one; stacks are told from the rest of a log."""

import faulthandler
import sys
import threading
from pathlib import Path

from run_benchmarks.plan.plan import LABEL
from run_benchmarks.rounds.round import stacks
from run_benchmarks.session.preparation import prepare
from tests.run_benchmarks.conftest import TEST, Load


def test_names_folders_and_labels_of_a_further_attempt_are_its_own(load: Load) -> None:
    prepared = prepare(load(), "run20261121191924")
    rounds = [prepared.attempt(prepared.plan, "ONE", 1, number) for number in (1, 2, 3)]
    assert rounds[0] == prepared.plan.cases[0].rounds[0] and [each.attempt for each in rounds] == [1, 2, 3]
    assert [each.folder for each in rounds] == ["round1", "round1_try2", "round1_try3"]
    first, second, third = (each.nodes[0] for each in rounds)
    assert len({node.workload.name for node in (first, second, third)}) == 3
    assert len({node.log_dir_host for node in (first, second, third)}) == 3
    assert second.log_dir_host.endswith("/round1_try2/localhost_noderank0")
    for task in (second.workload, second.monitor):
        assert task.labels[f"{LABEL}.attempt"] == "2"
        assert first.log_dir_host not in " ".join(task.argv) and second.log_dir_host in " ".join(task.argv)
        assert f"{second.log_dir_host}/workload.lock" in second.monitor.argv


def test_a_further_attempt_does_what_the_first_did_with_paths_of_its_own(load: Load) -> None:
    """Data that lies where the first attempt wrote its logs are those of every attempt."""
    folder = prepare(load(), "run20261121191924").plan.cases[0].rounds[0].nodes[0].log_dir_host
    prepared = prepare(
        load(f"{TEST}ONE |= {{'data_dir_host': {folder!r}, 'data_dir_container': '/data'}}\n"), "run20261121191924"
    )
    first, second = (prepared.attempt(prepared.plan, "ONE", 1, number).nodes[0] for number in (1, 2))
    for argv in (first.workload.argv, second.workload.argv):
        assert argv[argv.index("--data_dir") + 1] == folder


def test_a_further_attempt_mounts_its_own_folder(load: Load) -> None:
    prepared = prepare(load(TEST.replace("process", "docker")), "run20261121191924")
    first, second = (prepared.attempt(prepared.plan, "ONE", 1, number).nodes[0] for number in (1, 2))
    sources = [{mount.source for mount in node.mounts} for node in (first, second)]
    assert sources[0] - sources[1] == {first.log_dir_host} and sources[1] - sources[0] == {second.log_dir_host}
    assert second.workload.argv == first.workload.argv  # a container sees its folder under one path


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
