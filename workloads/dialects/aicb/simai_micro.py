"""AICB's micro tests as SimAI text: one collective per row, sizes doubling."""

from workloads.dialects.aicb.collective import sweep
from workloads.formats.simai import SimaiWorkload
from workloads.formats.simai_text import KNOWN, Phase, WorkItem
from workloads.job.parameters import WorkloadArgs
from workloads.rows.blocks import Block


def generate(args: WorkloadArgs) -> SimaiWorkload:
    """One data-parallel row a size. AICB writes None for what SimAI does not know: `simai_micro_unknown`."""
    comm = KNOWN.get(args.test_comm, "None")
    rows = [WorkItem("micro_test", weight_gradient=Phase(1, comm, size), process_ns=1) for size in sweep(args)]
    return SimaiWorkload(None, Block(rows), args)
