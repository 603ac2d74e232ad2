"""Holds the verbs of `python -m workloads`."""

from common.command_line import Program
from workloads.job.parameters import SCRIPTS_NAMES

# A verb is one line here and a module, or an object in one, with HELP, add_arguments(parser) and run(arguments).
VERBS = {
    "generate": "workloads.commands.generate:GENERATE",
    "simai": "workloads.commands.generate:SIMAI",
    "job": "workloads.commands.generate:JOB",
    "suite": "workloads.commands.suite",
    "show": "workloads.commands.show:SHOW",
    "diff": "workloads.commands.show:DIFF",
    "export": "workloads.formats.chakra.command:EXPORT",
    "import": "workloads.formats.chakra.command:IMPORT",
    "trace": "workloads.trace.command",
    "aiob": "training.benchmarks.aicb.measuring.command",
    "compute look-up": "workloads.compute.command:LOOK_UP",
    "compute fill": "workloads.compute.command:FILL",
    "compute show": "workloads.compute.command:SHOW",
    "compute check": "workloads.compute.command:CHECK",
    "compute merge": "workloads.compute.command:MERGE",
    "log": "workloads.commands.log",
    "analyze": "workloads.commands.analyze",
    "visualize": "workloads.commands.visualize",
    "deviations": "workloads.commands.show:DEVIATIONS",
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
