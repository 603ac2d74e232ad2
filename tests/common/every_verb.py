"""Calls every verb of the three programs on small inputs, without a cluster; that each has a call here is a test."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from common.command_line import Program
from run_benchmarks.commands import cli as controller
from simulation import cli as simulation
from tests.run_benchmarks.conftest import CLUSTER, TEST
from tests.run_benchmarks.results.recorded_runs import a_run, on_disk
from workloads import cli as workloads

DATA = Path(__file__).parents[1] / "data"
A, B = "run20261101000000", "run20261102000000"
CONF, FILES = "--test-conf test_conf.py", "--cluster-conf cluster_conf.py --test-conf test_conf.py"
BROKEN = "--cluster-conf cluster_conf.py --test-conf broken_conf.py"
TRACE = "--world_size 8 --global_batch 8 --num_layers 2 --hidden_size 256"
PROGRAMS: dict[str, tuple[Program, Callable[[Sequence[str]], int]]] = {
    "run": (controller.PROGRAM, controller._main),
    "workloads": (workloads.PROGRAM, workloads.main),
    "simulation": (simulation.PROGRAM, simulation.main),
}
VERBS = [(name, verb) for name, (program, _) in PROGRAMS.items() for verb in program.verbs]
CALLS: dict[tuple[str, str], str] = {
    ("run", "run"): BROKEN,
    ("run", "accept"): BROKEN,
    ("run", "resume"): f"{A} {CONF}",
    ("run", "status"): FILES,
    ("run", "attach"): f"{A} {CONF}",
    ("run", "stop"): f"{A} {CONF}",
    ("run", "plan"): FILES,
    ("run", "check"): BROKEN,
    ("run", "trust"): FILES,
    ("run", "diagnose"): BROKEN,
    ("run", "collect"): f"{A} {CONF}",
    ("run", "drain"): f"{A} {CONF}",
    ("run", "undrain"): f"{A} {CONF}",
    ("run", "compare"): f"{A} {B} {CONF}",
    ("run", "report"): f"{A} {B} {CONF} --output page.html",
    ("run", "show"): f"{A} PAIRS {CONF}",
    ("run", "export"): f"{A} {CONF} --output table.csv",
    ("run", "bundle"): f"{A} PAIRS {CONF}",
    ("run", "history"): f"--rebuild {CONF}",
    ("run", "list"): "",
    ("run", "import-flagperf"): "tree --output ours",
    ("run", "clean"): f"{A} {CONF} --cluster-conf none.py",
    ("run", "verify"): f"{A} {CONF}",
    ("workloads", "generate"): f"{TRACE} --output made.csv",
    ("workloads", "simai"): f"{TRACE} --output made.txt",
    ("workloads", "job"): f"{TRACE} --output made.yaml",
    ("workloads", "suite"): "--world_size 8 --rows 1 --output_dir suite",
    ("workloads", "show"): "job.csv",
    ("workloads", "diff"): "job.csv job.csv",
    ("workloads", "export"): "job.csv --chakra traces",
    ("workloads", "import"): "chakra/workload.0.et --output made.csv",
    ("workloads", "trace"): f"{TRACE} --output made.csv",
    ("workloads", "aiob"): "--world_size 3 --tp 2 --output made.txt",
    ("workloads", "compute look-up"): "--device H100 --op gemm --shape m=4096,k=4096,n=4096",
    ("workloads", "compute fill"): "job.csv --device H100 --output made.csv",
    ("workloads", "compute show"): "",
    ("workloads", "compute check"): "",
    ("workloads", "compute merge"): "made.db times.csv",
    ("workloads", "log"): "ops",
    ("workloads", "analyze"): "ops",
    ("workloads", "visualize"): "job.csv --output made.html",
    ("workloads", "deviations"): "",
    ("simulation", "topology"): "-g 8 -psn 1",
    ("simulation", "flows"): "--op AllToAll --size 1K --ranks 8",
    ("simulation", "topology show"): "topo",
    ("simulation", "topology edit"): "topo --slow-gpu 0:0.5",
    ("simulation", "topology draw"): "topo",
    ("simulation", "topology export"): "topo --output made.yaml",
    ("simulation", "topology import"): "topo.yaml",
    ("simulation", "analytical"): "-w micro.txt -n topo",
    ("simulation", "network"): "-n topo -w micro.txt --level flow",
    ("simulation", "predict"): "--rows rows.csv",
    ("simulation", "sweep"): "--model llama2_7b --gpu H100 --gpus 8 --gbs 8 --pp 1 --vpp 1 --cp 1",
}
REFUSED = {
    ("run", verb) for verb in ("run", "accept", "resume", "attach", "stop", "check", "diagnose", "collect", "clean")
} | {("workloads", "aiob")}
"""Calls that end with 2: on a broken file, or a run without a journal."""
ROWS = "gpu,gpus,hidden,layers,heads,vocab,seq\nH100,8,4096,32,32,32000,4096\n"
TIMES = """device,op,shape,dtype,kernel,versions,ns,spread,count,source
Q,gemm,m=1024 k=1024 n=1024,bf16,x,v,1000,1,5,s
Q,gemm,m=2048 k=1024 n=1024,bf16,x,v,2000,1,5,s
"""
MICRO = "MICRO\n1\nlayer -1 1 NONE 0 1 NONE 0 1 ALLREDUCE 1048576 1\n"


def words_of(name: str, verb: str) -> list[str]:
    """The command line of a verb's call."""
    return [*verb.split(), *CALLS[name, verb].split()]


def options_of(name: str, verb: str) -> set[str]:
    """The options of a verb, by the command tree."""
    return {each for action in PROGRAMS[name][0].parser(verb)._actions for each in action.option_strings}


def make_inputs(folder: Path) -> Path:
    """Make the files that the calls read, which run in their folder."""
    for run, values in ((A, [100.0, 101.0]), (B, [50.0, 51.0])):
        on_disk(folder / "result", a_run(run, values))
    paths = f"FLAGPERF_LOG_PATH_HOST = {str(folder / 'result')!r}\nFLAGPERF_PATH_HOST = {str(folder / 'deploy')!r}\n"
    (folder / "cluster_conf.py").write_text(CLUSTER)
    (folder / "test_conf.py").write_text(TEST.replace('; HISTORY = "off"', "") + paths)
    (folder / "broken_conf.py").write_text(paths)
    (folder / "rows.csv").write_text(ROWS)
    (folder / "micro.txt").write_text(MICRO)
    shutil.copytree(DATA / "flagperf" / "tree", folder / "tree")
    shutil.copytree(DATA / "aicb" / "gloo_noise" / "4", folder / "ops")
    (folder / "times.csv").write_text(TIMES)
    made = (
        (workloads.main, f"generate {TRACE} --computation_enable --output {folder}/job.csv"),
        (workloads.main, f"export {folder}/job.csv --chakra {folder}/chakra"),
        (simulation.main, f"topology -g 8 -psn 1 --output {folder}/topo"),
        (simulation.main, f"topology export {folder}/topo --output {folder}/topo.yaml"),
    )
    assert [main(words.split()) for main, words in made] == [0] * len(made)
    return folder
