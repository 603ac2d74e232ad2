"""AICB workloads: the communication of a training step of a large model, computed without a GPU.

from training.benchmarks.aicb import Workload, WorkloadArgs, generate

workload = generate(WorkloadArgs(world_size=8, tensor_model_parallel_size=2, global_batch=8, num_attention_heads=16))
workload.totals("comm_type", "comm_group")
workload.save("gpt.csv")
workload, args = Workload.load("gpt.csv")
"""

from training.benchmarks.aicb.api import generate, simai
from training.benchmarks.aicb.blocks import Block
from training.benchmarks.aicb.errors import AicbError, CompFileError, ParameterError, WorkloadFileError
from training.benchmarks.aicb.groups import RankGroups
from training.benchmarks.aicb.log import Log
from training.benchmarks.aicb.model import Linear, MockedModel, MockedParam, Stack
from training.benchmarks.aicb.ops import CommGroup, CommType, LogItem
from training.benchmarks.aicb.parameters import WorkloadArgs
from training.benchmarks.aicb.simai import SimaiWorkload, WorkItem
from training.benchmarks.aicb.trainer import WorkloadTrainer as Trainer
from training.benchmarks.aicb.workload import Total, Workload

__all__ = [
    "AicbError",
    "Block",
    "CommGroup",
    "CommType",
    "CompFileError",
    "Linear",
    "Log",
    "LogItem",
    "MockedModel",
    "MockedParam",
    "ParameterError",
    "RankGroups",
    "SimaiWorkload",
    "Stack",
    "Total",
    "Trainer",
    "WorkItem",
    "Workload",
    "WorkloadArgs",
    "WorkloadFileError",
    "generate",
    "simai",
]
