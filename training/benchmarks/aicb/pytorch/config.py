"""Settings of a run of an AICB workload. Imports no torch: the controller validates case configs with it."""

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, ValidationInfo, field_validator

from protocol.case_config import CaseConfig, MemoryNeed
from training.benchmarks.aicb.pytorch.work.calls import Caller
from training.benchmarks.aicb.pytorch.work.footprint import footprint
from training.benchmarks.aicb.pytorch.work.stage import GENERATED, StageWorkload, groups_of
from workloads import dialects
from workloads.dialects import generation
from workloads.dialects.framework import presets as models
from workloads.job import presets
from workloads.job.description import model
from workloads.job.errors import AicbError
from workloads.job.parameters import KINDS, WorkloadArgs
from workloads.options import resolve

OF_THE_RUN = frozenset({"world_size", "pp_rank", "gpu_type", "enable_visual", "workload_only"})
"""Parameters that the run itself determines, or that change no row."""
NAMES = tuple(name for name in KINDS if name not in OF_THE_RUN)

if TYPE_CHECKING:
    GeneratorSettings = CaseConfig
else:
    GeneratorSettings = model(
        "GeneratorSettings",
        CaseConfig,
        NAMES,
        "The parameters of a generated workload; None: the preset's value, else AICB's default.",
        __name__,
    )


def least_bytes(args: WorkloadArgs, dialect: str, scale: Fraction) -> int:
    """Bytes of the largest input and output together of the pipeline stage that needs the least; of its first rank.

    Every rank needs so much at least: calls that overlap, and the operands of a replay, come on top of it.

    Raises:
        AicbError: the workload cannot be generated, or a row cannot be called.
    """
    return min(_stage_bytes(args, dialect, scale, stage) for stage in range(args.pipeline_model_parallel))


def _stage_bytes(args: WorkloadArgs, dialect: str, scale: Fraction, stage: int) -> int:
    groups = groups_of(args, dialect)
    own = stage * (args.world_size // groups.pp)
    # One iteration has the sizes of all.
    workload = generation.generate(replace(args, epoch_num=1), dialect=dialect, pp_stage=stage)
    of = StageWorkload(workload, groups, stage, own, GENERATED, args.frame)
    caller = Caller(of, own, args.world_size, scale)
    calls = (caller.call(item) for item in workload.rows.tally_kinds() if item.is_communication)
    return max((footprint(call, own).total for call in calls), default=0)


ENTRY_MODULE = "training.benchmarks.aicb.pytorch"
Timing = Literal["each", "stream", "replay"]


class Config(GeneratorSettings):
    """One workload, from files or generated, and how it is executed."""

    workload: str | None = Field(
        None, description="workload CSV on the hosts, for all ranks; None: generated, or from stages"
    )
    stages: str | None = Field(
        None, description="folder on the hosts with stage0.csv, stage1.csv, ...: one workload a pipeline stage"
    )
    dialect: Literal["aicb", "framework"] = Field(
        dialects.DEFAULT_DIALECT, description="whose behaviour a generated workload follows"
    )
    model_size: str | int | None = Field(
        None, description="a ready-made model, as generate -m takes it; settings beside it win"
    )
    num_microbatches: int | None = Field(
        None, ge=1, description="micro-batches a rank runs; without it and global_batch one per pipeline stage"
    )
    iterations: int | None = Field(
        None, ge=1, description="iterations to run, those of the workload in turn; None: as many as it has"
    )
    scale: str = Field("1", description="factor of all sizes, as 1/64: the pattern stays, the bytes shrink")
    timing: Timing = Field(
        "each",
        description="each: waits for every operation; stream: waits where the workload waits; replay: and computes",
    )
    check: bool = Field(True, description="compare the data received, once for each kind of operation and size")
    print_ops: bool = Field(False, description="print a line for each operation of rank 0, as AICB does")
    units: Literal["GB", "GiB"] = Field("GB", description="unit of printed bandwidth: GB is 1e9 bytes, GiB is AICB's")

    @field_validator("scale", mode="before")
    @classmethod
    def _number_is_text(cls, value: Any) -> Any:
        """Read a number as if it were written in a string: `--set scale=0.5` arrives here as one."""
        return str(value) if type(value) in (int, float) else value

    @field_validator("scale")
    @classmethod
    def _scale_shrinks(cls, value: str) -> str:
        try:
            found = Fraction(value)
        except (ValueError, ZeroDivisionError):
            raise ValueError(f"{value!r} is no fraction; allowed: 1, 1/2, 1/64 and the like") from None
        if not 0 < found <= 1:
            raise ValueError(f"{value} is not above 0 and at most 1")
        return value

    @field_validator("stages")
    @classmethod
    def _one_source(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is not None and info.data.get("workload") is not None:
            raise ValueError("a run has one workload: leave workload or stages out")
        return value

    @field_validator("num_microbatches")
    @classmethod
    def _one_batch(cls, value: int | None, info: ValidationInfo) -> int | None:
        if value is not None and info.data.get("global_batch") is not None:
            raise ValueError("global_batch says it already; leave one of the two out")
        return value

    @field_validator("model_size")
    @classmethod
    def _model_exists(cls, value: str | int | None) -> str | int | None:
        known = (*presets.NAMES, *models.NAMES)
        if value is not None and str(value) not in known:
            raise ValueError(f"there is no model {value!r}; allowed: {', '.join(known)}")
        return value

    @property
    def is_generated(self) -> bool:
        """Whether the workload comes from the settings and not from a file."""
        return self.workload is None and self.stages is None

    @property
    def factor(self) -> Fraction:
        """`scale` as a number, dimensionless."""
        return Fraction(self.scale)

    def given(self) -> dict[str, Any]:
        """The parameters of the generator that are set, by name."""
        return {name: value for name in NAMES if (value := getattr(self, name)) is not None}

    def parameters(self, world_size: int) -> WorkloadArgs:
        """The parameters of the generated workload of `world_size` ranks.

        Raises:
            AicbError: they break rules; the message lists all of them.
        """
        given = self.given()
        model = None if self.model_size is None else str(self.model_size)
        try:
            args = resolve({**given, "world_size": world_size}, model, "csv", self.dialect)
        except ValueError as error:
            raise AicbError(f"model_size = {self.model_size!r}: {error}") from None
        divides = args.tensor_model_parallel_size * args.pipeline_model_parallel > 0
        if divides and "global_batch" not in given and (model is None or self.num_microbatches is not None):
            count = self.num_microbatches or args.pipeline_model_parallel
            args = replace(args, global_batch=count * max(1, args.data_parallel_size) * args.micro_batch)
        generation.check(args, dialects.get(self.dialect), "csv")
        return args

    def refusal(self, *, nnodes: int, nproc: int) -> str | None:
        """Why no workload of these settings can be generated for `nnodes` x `nproc` ranks; None if one can."""
        if not self.is_generated:
            return None
        try:
            self.parameters(nnodes * nproc)
        except AicbError as error:
            return "; ".join(line for line in str(error).splitlines() if not line.startswith("--break_rules"))
        return None

    def memory_need(self, *, nnodes: int, nproc: int) -> MemoryNeed | None:
        """The largest operation of a generated workload; a file is on the hosts, where its ranks look."""
        if not self.is_generated:
            return None
        try:
            least = least_bytes(self.parameters(nnodes * nproc), self.dialect, self.factor)
        except AicbError:
            return None
        remedy = "set scale to a smaller fraction, as '1/64'"
        return MemoryNeed(bytes_per_rank=least, purpose="the largest operation's buffers", remedy=remedy)
