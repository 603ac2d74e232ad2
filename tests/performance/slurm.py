"""The controller's own work for a run on a thousand nodes of Slurm: reading what Slurm answers, planning, journalling.

The answers are recorded ones (tests/data/slurm), repeated for as many nodes; beside the parsers the same bytes are
divided into lines and fields, which every reader of them has to do. A controller of its own plans the run and writes
its journal, beside a Python with the controller's modules.
"""

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from protocol.perflog import Event
from run_benchmarks.console.command_line import ROOT
from run_benchmarks.hosts.base import Completed
from run_benchmarks.hosts.slurm.host import reported
from run_benchmarks.hosts.slurm.jobs import from_sacct, from_squeue
from run_benchmarks.hosts.slurm.nodes import from_sinfo
from run_benchmarks.results.rank_logs import rank_log_name, read_rank_log
from tests.performance.peak import run_sound
from tests.performance.rows import Row
from tests.run_benchmarks.hosts.test_slurm_jobs import PENDING, RECORDED, as_asked
from tests.run_benchmarks.results.rounds import perflog

NODES, SMOKE_NODES = 1000, 10
STEPS = 20  # short steps of a round on each node, each an answer of srun
GOAL_SECONDS, GOAL_MEGABYTES = 2.0, 150.0
SAID = "__clusterdyno_begun\nsrun: warning: one\n__clusterdyno_ended 0\n"
# Arguments: a folder, the number of nodes.
CONTROLLER = """
import sys
from pathlib import Path
from run_benchmarks.results.records import Verdict
from run_benchmarks.session.preparation import prepare
from run_benchmarks.settings.settings import load_settings
from run_benchmarks.state.journal import (
    Journal, NodeEnd, RoundCollecting, RoundEnded, RoundStarted, RunStarted)
folder, nodes = Path(sys.argv[1]), int(sys.argv[2])
(folder / "cluster_conf.py").write_text(f"LAUNCHER = 'slurm'\\nHOSTS = 'n[0001-{nodes:04}]'\\n")
case = {"model": "network", "framework": "pytorch", "config": "config_CPUx1x2", "nnodes": nodes, "nproc": 8}
case["repeat"] = 3
(folder / "test_conf.py").write_text(
    f"VENDOR = 'cpu'\\nRUNTIME = 'slurm'\\nPYTHON = '/shared/python'\\nCASES = ['ONE']\\nONE = {case!r}\\n")
prepared = prepare(load_settings(folder / "cluster_conf.py", folder / "test_conf.py"), "run20261121191924")
plan, journal = prepared.plan, Journal(folder)
journal.append(RunStarted(run_id=plan.run_id, pid=1, plan_digest=prepared.digest(), cluster_conf="c", test_conf="t",
                          rounds={"ONE": 3}, hosts=list(plan.hosts)))
for index in (1, 2, 3):
    attempt = prepared.attempt(plan, "ONE", index, 2)
    assert len(attempt.nodes) == nodes
    which = {"case": "ONE", "round": index, "attempt": 2}
    boots = dict.fromkeys(plan.hosts, "8f31a7f4-0b1c-4b3e-9a58-2f6f4d2f7c11")
    journal.append(RoundStarted(**which, master_port=29500, hosts=list(plan.hosts), boot_ids=boots))
    ends = {host: NodeEnd(exit_code=0, error=None, stopped=False, warnings=[f"{host}: one"]) for host in plan.hosts}
    journal.append(RoundCollecting(**which, nodes=ends, early_end=None, phase_seconds={"run": 1.0}))
    journal.append(RoundEnded(**which, verdict=Verdict.PASS, reason="all ranks finished"))
assert len(journal.read().ended) == 3
"""


def measure(*, smoke: bool = False) -> list[Row]:
    """Two rows: the parsers' time, and the peak memory of planning and journalling."""
    nodes = SMOKE_NODES if smoke else NODES
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        return [_parsers(folder, nodes), _controller(folder, nodes)]


def _parsers(folder: Path, nodes: int) -> Row:
    lines = [as_asked(line).partition("|")[2] for line in PENDING[1:]]
    squeue = "\n".join(f"{number}|{lines[number % len(lines)]}" for number in range(nodes))
    ended = (RECORDED / "sacct_preempted_requeued.txt").read_text().splitlines()
    fields = [line.split("|") for line in ended if "." not in line.split("|")[0]]
    sacct = "\n".join(
        f"{number}|{state}|{code}|{where}" for number in range(nodes) for _, state, code, *_, where in fields
    )
    sinfo = "\n".join(f"n{number:04}|down*|root|Not responding, by slurmctld; 2|3" for number in range(nodes))
    steps = [Completed(argv=("srun",), exit_code=0, stdout="", stderr=SAID, seconds=1.0)] * (nodes * STEPS)
    for rank in range(nodes):
        (folder / rank_log_name(rank)).write_text(perflog(rank, {"busbw_GBps": 1.0}))

    def ours() -> None:
        found = len(list(from_squeue(squeue))), len(list(from_sacct(sacct))), len(from_sinfo(sinfo))
        exits = {reported(step)[0] for step in steps}
        finished = sum(read_rank_log(folder, rank).value(Event.FINISHED) is not None for rank in range(nodes))
        if (found, exits, finished) != ((nodes, nodes * len(fields), nodes), {0}, nodes):
            raise RuntimeError(f"not everything was read: {found}, {exits}, {finished}")

    def bare() -> None:
        for text in (squeue, sacct, sinfo, *(step.stderr for step in steps)):
            for line in text.splitlines():
                line.split("|")
        for rank in range(nodes):
            (folder / rank_log_name(rank)).read_text().splitlines()

    seconds, floor = _timed(ours), _timed(bare)
    return Row(
        what=f"squeue, sacct, sinfo, {STEPS} steps and a rank log of each of {nodes} nodes, read",
        measured=f"{seconds:.2f} s",
        baseline=f"{floor:.2f} s: lines and fields of the same bytes",
        ratio=seconds / floor,
        goal=f"under {GOAL_SECONDS:g} s",
        met=seconds < GOAL_SECONDS,
    )


def _controller(folder: Path, nodes: int) -> Row:
    seconds, peak, _ = run_sound([sys.executable, "-c", CONTROLLER, str(folder), str(nodes)], ROOT)
    _, bare, _ = run_sound([sys.executable, "-c", "import run_benchmarks.session.session"], ROOT)
    return Row(
        what=f"three rounds on {nodes} nodes planned and journalled, peak memory",
        measured=f"{peak:.0f} MB, {seconds:.1f} s",
        baseline=f"{bare:.0f} MB, Python with its libraries imported",
        ratio=peak / bare,
        goal=f"under {GOAL_MEGABYTES:g} MB",
        met=peak < GOAL_MEGABYTES,
    )


def _timed(action: Callable[[], None]) -> float:
    started = time.monotonic()
    action()
    return time.monotonic() - started
