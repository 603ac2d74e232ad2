"""Holds the verbs of `python -m workloads`."""

from common.command_line import Program
from workloads.job.parameters import SCRIPTS_NAMES

# A verb: its module, or an object in one, with add_arguments(parser) and run(arguments) -> Summary; its help.
VERBS = {
    "generate": (
        "workloads.commands.generate:GENERATE",
        "write a workload as CSV: every collective and GEMM with its group, size and stage",
    ),
    "simai": (
        "workloads.commands.generate:SIMAI",
        "write a workload as text for the SimAI simulator (aicb's frame collective_test: its micro test)",
    ),
    "job": (
        "workloads.commands.generate:JOB",
        "write the description of a job, which every verb that needs a job reads as --job",
    ),
    "suite": (
        "workloads.commands.suite",
        "write the ten workloads of the AICB specification 1.1",
    ),
    "show": (
        "workloads.commands.show:SHOW",
        "summarise a workload file: operations and bytes by type, group and stage",
    ),
    "diff": (
        "workloads.commands.show:DIFF",
        "compare two workload CSVs: totals, and the first calls that differ. Exit code 1: they differ",
    ),
    "export": (
        "workloads.formats.chakra.command:EXPORT",
        "write workload CSVs as Chakra execution traces, one for each rank",
    ),
    "import": (
        "workloads.formats.chakra.command:IMPORT",
        "read a Chakra execution trace as a workload CSV",
    ),
    "trace": (
        "workloads.trace.options workloads.trace.command",
        "run Megatron-core, FSDP2 or DeepSpeed itself for one rank of any job on this machine; write what it sends",
    ),
    "aiob": (
        "training.benchmarks.aicb.measuring.options training.benchmarks.aicb.measuring.command",
        "measure each sub-module of a layer at the shapes of one rank, forward and backward (AIOB)",
    ),
    "compute look-up": (
        "workloads.compute.command:LOOK_UP",
        "answer with a time, how it was found (exact, interpolated, roofline) and its error bar",
    ),
    "compute fill": (
        "workloads.compute.command:FILL",
        "write a workload CSV with the time of each of its kernels on a device",
    ),
    "compute show": (
        "workloads.compute.command:SHOW",
        "list what is in the shipped tables and in databases",
    ),
    "compute check": (
        "workloads.compute.command:CHECK",
        "predict each row from the others. Exit code 1: the median error is 10 % or more",
    ),
    "compute merge": (
        "workloads.compute.command:MERGE",
        "merge databases; rows that differ in version, source or time are kept apart",
    ),
    "log": (
        "workloads.commands.run_readers:LOG workloads.commands.log",
        "print what was measured of an executed workload, as AICB prints it; write its log CSV",
    ),
    "analyze": (
        "workloads.commands.run_readers:ANALYZE workloads.commands.analyze",
        "find what makes an executed workload jitter, or differs between two. Exit codes: 0 nothing, 1 something",
    ),
    "visualize": (
        "workloads.commands.run_readers:VISUALIZE workloads.commands.visualize",
        "write one page, for any browser without a network, of a run's op logs or of a workload",
    ),
    "deviations": (
        "workloads.commands.show:DEVIATIONS",
        "list where a dialect does not do what the real framework does",
    ),
}
PROGRAM = Program(
    module="workloads",
    purpose="Describes what a step of a large model computes and sends, without a GPU.",
    verbs=VERBS,
    examples=(
        "generate -m 13 --world_size 128 --tp 8 --sp",
        "generate -m llama3_405b --world_size 16384 --output llama.csv",
        "generate --frame DeepSpeed -m 7 --zero_stage 3 --world_size 64 --output zero3.csv",
        "simai -m 7 --world_size 4096 --global_batch 8192 --dialect aicb --aiob_enable --comp_filepath times.txt",
        "suite --world_size 128",
        "diff aicb.csv framework.csv",
    ),
    abbreviates=True,
    renamed={f"--{name}": f"--{ours}" for name, ours in SCRIPTS_NAMES.items()},
)
main = PROGRAM.main
