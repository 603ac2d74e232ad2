"""AICB workloads: the communication of a training step of a large model, computed without a GPU.

from workloads.library import Workload, WorkloadArgs, generate

workload = generate(WorkloadArgs(world_size=8, tensor_model_parallel_size=2, global_batch=8, num_attention_heads=16))
workload.totals("comm_type", "comm_group")
workload.save("gpt.csv")
workload, args = Workload.load("gpt.csv")
"""

from workloads.dialects.generation import generate, simai
from workloads.dialects.model import Linear, MockedModel, MockedParam, Stack
from workloads.dialects.trainer import WorkloadTrainer as Trainer
from workloads.formats.simai import SimaiWorkload
from workloads.formats.simai_text import WorkItem
from workloads.formats.workload import Total, Workload
from workloads.job.errors import AicbError, CompFileError, ParameterError, WorkloadFileError
from workloads.job.groups import RankGroups
from workloads.job.parameters import WorkloadArgs
from workloads.oplog.log import Log
from workloads.rows.blocks import Block
from workloads.rows.ops import CommGroup, CommType, LogItem

__all__ = [
    "AicbError", "Block", "CommGroup", "CommType", "CompFileError", "Linear", "Log", "LogItem", "MockedModel",
    "MockedParam", "ParameterError", "RankGroups", "SimaiWorkload", "Stack", "Total", "Trainer", "WorkItem", "Workload",
    "WorkloadArgs", "WorkloadFileError", "generate", "simai",
]  # fmt: skip
