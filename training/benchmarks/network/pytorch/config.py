"""Settings of the network benchmark. Imports no torch: the controller validates case configs with it."""

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field, ValidationInfo, field_validator

from training.benchmarks.driver.protocol.case_config import CaseConfig, MemoryNeed
from training.benchmarks.network.links import link
from training.benchmarks.network.nccl_tests import PROGRAMS
from training.benchmarks.network.schedule import ConcurrentGroups, HostRanks, rounds
from training.benchmarks.network.sizes import format_size, parse_sizes
from training.benchmarks.network.symptoms import LATE_PERCENT, LATENCY_BYTES

ENTRY_MODULE = "training.benchmarks.network"

DType = Literal["float64", "float32", "float16", "bfloat16", "int64", "int32", "int8", "uint8"]
ELEMENT_BYTES: dict[str, int] = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "int64": 8,
    "int32": 4,
    "int8": 1,
    "uint8": 1,
}
CollectiveName = Literal[
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "all_to_all_uneven",
    "broadcast",
    "reduce",
    "gather",
    "scatter",
    "send_recv",
    "send_recv_two_way",
    "barrier",
]
Tool = Literal[
    "sweep",
    "all_reduce_bench",
    "all_gather_object_vs_all_reduce",
    "all_gather_object_vs_all_gather",
    "all_reduce_latency_comp",
    "nccl_tests",
]
Pattern = Literal["all", "each", "pairs", "halves", "k_batch", "rail"]
DEFAULT_SIZES = "8..64M x2"
# Number of messages of the tool all_reduce_latency_comp.
PARTS = 1000
SWEEPS = ("sweep", "all_reduce_bench", "nccl_tests")
OWN_COLLECTIVE = ("sweep", "nccl_tests")

_IN_PLACE_ONLY = ("all_reduce", "broadcast", "reduce")
_EITHER_WAY = ("all_gather", "reduce_scatter")
_PAIRWISE = ("send_recv", "send_recv_two_way")
_TWO_BUFFERS = ("all_to_all", "all_to_all_uneven", "gather", "scatter", *_PAIRWISE)


class Config(CaseConfig):
    """One sweep of one collective over message sizes, by all ranks or by groups; or one of ml-engineering's tools."""

    tool: Tool = Field("sweep", description="what runs: the sweep, or a tool of ml-engineering or of nccl-tests")
    collective: CollectiveName = Field("all_reduce", description="the collective that is measured")
    dtype: DType = Field("float32", description="element type of the buffers")
    sizes: str = Field(
        DEFAULT_SIZES,
        description="message sizes (S of nccl-tests): 1M, 8..256M x2, 1M..8M +1M or a comma list; K, M, G are binary",
    )
    in_place: bool | None = Field(
        None, description="whether the result replaces the input; None: in place where torch knows no other form"
    )
    warmup_iterations: int = Field(5, ge=0, description="untimed iterations before each size")
    iterations: int = Field(20, ge=1, description="timed iterations of each size")
    check: bool = Field(True, description="whether received data is compared with what must arrive, for every size")
    cuda_graph: bool = Field(False, description="whether the operation is replayed from a CUDA graph (nccl)")
    pattern: Pattern = Field("all", description="which ranks measure together, group by group")
    ranks_per_host: Literal["one", "all"] = Field(
        "all", description="who takes part in pairs, halves and k_batch: each host's first rank or all its ranks"
    )
    batch_hosts: int = Field(2, ge=2, description="hosts in a group of the pattern k_batch")
    repeats: int = Field(1, ge=1, description="how often the whole pattern is measured; medians need 3 or more")
    slow_percent: float = Field(
        15.0, gt=0, lt=100, description="how much slower than the others a host or pair must be to be named"
    )
    late_percent: float = Field(
        LATE_PERCENT, gt=0, description="how much longer than its peers' a host's or pair's small messages must take"
    )
    nccl_tests: str | None = Field(
        None, description="folder on the hosts with nccl-tests' programs, for tool nccl_tests; None: those on PATH"
    )
    expected_link: str | float | None = Field(
        None, description="the link between hosts: a name of links.json, or its GB/s in one direction"
    )
    expected_links: int = Field(1, ge=1, description="how many such links each host uses in parallel")

    @field_validator("sizes", mode="before")
    @classmethod
    def _numbers_are_sizes(cls, value: Any) -> Any:
        """Read numbers as if they were written in a string: `--set sizes=1024,4096` arrives here as numbers."""
        parts = value if isinstance(value, list | tuple) else [value] if isinstance(value, int) else None
        if not parts or any(isinstance(part, bool) or not isinstance(part, int | str) for part in parts):
            return value
        return ",".join(map(str, parts))

    @field_validator("sizes")
    @classmethod
    def _sizes_parse(cls, value: str, info: ValidationInfo) -> str:
        dtype = info.data.get("dtype")  # absent when dtype itself is wrong
        sizes = parse_sizes(value)
        for size in sizes:
            if dtype is not None and size % ELEMENT_BYTES[dtype]:
                raise ValueError(
                    f"{size} bytes are not a whole number of {dtype} elements of {ELEMENT_BYTES[dtype]} bytes"
                )
        if value == DEFAULT_SIZES:
            return value
        if info.data.get("collective") == "barrier":
            raise ValueError("a barrier sends nothing and has no sizes; leave sizes out")
        tool = info.data.get("tool", "sweep")
        if tool.startswith("all_gather_object"):
            raise ValueError(f"tool {tool!r} sends a flag of one element; leave sizes out")
        if tool == "all_reduce_latency_comp" and (
            len(sizes) != 1 or sizes[0] < PARTS * ELEMENT_BYTES[dtype or "float64"]
        ):
            raise ValueError(
                f"tool {tool!r} sends one size, once whole and once in {PARTS} parts of an element or more"
            )
        return value

    @field_validator("collective")
    @classmethod
    def _tool_has_its_own(cls, value: str, info: ValidationInfo) -> str:
        tool = info.data.get("tool", "sweep")
        if tool == "nccl_tests" and value not in PROGRAMS:
            raise ValueError(f"nccl-tests has no program like {value}; allowed: {', '.join(PROGRAMS)}")
        if tool not in OWN_COLLECTIVE and value != "all_reduce":
            raise ValueError(f"tool {tool!r} measures its own collectives; leave collective out, or set tool = 'sweep'")
        return value

    @field_validator("dtype")
    @classmethod
    def _flags_are_integers(cls, value: str, info: ValidationInfo) -> str:
        tool = info.data.get("tool", "sweep")
        if tool.startswith("all_gather_object") and value != "float32":
            raise ValueError(f"tool {tool!r} sends an int32 flag; leave dtype out")
        if info.data.get("collective") == "barrier" and value != "float32":
            raise ValueError("a barrier sends nothing and has no element type; leave dtype out")
        return value

    @field_validator("in_place")
    @classmethod
    def _form_exists(cls, value: bool | None, info: ValidationInfo) -> bool | None:
        name = info.data.get("collective")
        if value is False and name in _IN_PLACE_ONLY:
            raise ValueError(f"torch.distributed.{name} works in place only; allowed: True")
        if value is True and name in _TWO_BUFFERS:
            raise ValueError(f"{name} needs an input and an output; allowed: False")
        if value is not None and name == "barrier":
            raise ValueError("a barrier has no buffers; leave in_place out")
        tool = info.data.get("tool", "sweep")
        if value is not None and tool.startswith("all_gather_object"):
            raise ValueError(f"tool {tool!r} has its own buffers; leave in_place out")
        return value

    @field_validator("cuda_graph")
    @classmethod
    def _can_be_captured(cls, value: bool, info: ValidationInfo) -> bool:
        if value and (info.data.get("collective") == "barrier" or info.data.get("tool") not in SWEEPS):
            raise ValueError("a barrier and the object tools wait on the host, which no CUDA graph can hold")
        return value

    @field_validator("pattern", "repeats")
    @classmethod
    def _tool_sweeps(cls, value: Any, info: ValidationInfo) -> Any:
        tool = info.data.get("tool", "sweep")
        if tool != "sweep" and value not in ("all", 1):
            raise ValueError(f"tool {tool!r} runs once among all ranks; set tool = 'sweep'")
        return value

    @field_validator("ranks_per_host")
    @classmethod
    def _chooses_ranks(cls, value: str, info: ValidationInfo) -> str:
        if value == "one" and info.data.get("pattern") not in ("pairs", "halves", "k_batch"):
            raise ValueError("only the patterns pairs, halves and k_batch choose ranks; leave ranks_per_host out")
        return value

    @field_validator("batch_hosts")
    @classmethod
    def _makes_batches(cls, value: int, info: ValidationInfo) -> int:
        if value != cls.model_fields["batch_hosts"].default and info.data.get("pattern") != "k_batch":
            raise ValueError("only the pattern k_batch has batches; leave batch_hosts out, or set pattern = 'k_batch'")
        return value

    @field_validator("slow_percent", "late_percent")
    @classmethod
    def _names_somebody(cls, value: float, info: ValidationInfo) -> float:
        if value == cls.model_fields[str(info.field_name)].default:
            return value
        if info.data.get("pattern") == "all":
            raise ValueError("the pattern all has no groups to compare; leave it out, or set pattern, as to 'pairs'")
        sizes = [] if info.data.get("collective") == "barrier" else parse_sizes(info.data.get("sizes", DEFAULT_SIZES))
        bound = format_size(LATENCY_BYTES)
        if info.field_name == "slow_percent" and max(sizes, default=0) <= LATENCY_BYTES:
            raise ValueError(f"bandwidth is judged by sizes above {bound}, and there is none; leave it out")
        if info.field_name == "late_percent" and min(sizes, default=0) > LATENCY_BYTES:
            raise ValueError(f"latency is judged by sizes up to {bound}, and there is none; leave it out")
        return value

    @field_validator("nccl_tests")
    @classmethod
    def _tool_runs_them(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is not None and info.data.get("tool") != "nccl_tests":
            raise ValueError("only the tool nccl_tests runs them; leave nccl_tests out, or set tool = 'nccl_tests'")
        return value

    @field_validator("expected_link")
    @classmethod
    def _link_is_known(cls, value: str | float | None, info: ValidationInfo) -> str | float | None:
        if value is None:
            return value
        link(value)
        tool = info.data.get("tool", "sweep")
        if tool not in SWEEPS:
            raise ValueError(f"tool {tool!r} compares two ways, not a bandwidth with a link; leave expected_link out")
        if info.data.get("collective") == "barrier":
            raise ValueError("a barrier has no bandwidth; leave expected_link out")
        return value

    @field_validator("expected_links")
    @classmethod
    def _counts_a_link(cls, value: int, info: ValidationInfo) -> int:
        if value != 1 and info.data.get("expected_link", "") is None:
            raise ValueError("counts expected_link, which is not set")
        return value

    def refusal(self, *, nnodes: int, nproc: int) -> str | None:
        """See CaseConfig."""
        hosts = [
            HostRanks(node_rank=node, name=str(node), ranks=tuple(range(node * nproc, (node + 1) * nproc)))
            for node in range(nnodes)
        ]
        try:
            return self.refusal_of(self.rounds_of(hosts), nnodes)
        except ValueError as error:
            return str(error)

    def memory_need(self) -> MemoryNeed | None:
        """The largest message of a sweep."""
        largest = max(self.size_list)
        if self.tool != "sweep" or largest == 0:
            return None
        return MemoryNeed(
            bytes_per_rank=largest, purpose=f"size {format_size(largest)}", remedy="lower the end of sizes"
        )

    def rounds_of(self, hosts: Sequence[HostRanks]) -> tuple[ConcurrentGroups, ...]:
        """The rounds of the pattern on these hosts.

        Raises:
            ValueError: the pattern cannot be laid over the hosts.
        """
        return rounds(self.pattern, hosts, ranks_per_host=self.ranks_per_host, batch_hosts=self.batch_hosts)

    def refusal_of(self, found: Sequence[ConcurrentGroups], nnodes: int) -> str | None:
        """The reason why these rounds cannot be measured, in words; None if they can."""
        smallest = min(len(group.ranks) for each in found for group in each.groups)
        if self.collective in _PAIRWISE and smallest < 2:
            return (
                f"collective = {self.collective!r} needs groups of 2 ranks or more;"
                f" pattern {self.pattern!r} makes one of {smallest} here"
            )
        if self.tool == "nccl_tests" and nnodes > 1:
            return "tool 'nccl_tests' runs on 1 host: over several it needs MPI, which is not used here"
        return None

    @property
    def size_list(self) -> tuple[int, ...]:
        """The sizes in bytes, in the order of the sweep; a barrier has one of 0 bytes."""
        return (0,) if self.collective == "barrier" else parse_sizes(self.sizes)

    @property
    def works_in_place(self) -> bool:
        """`in_place`, or what the collective does by itself."""
        return self.collective in _IN_PLACE_ONLY if self.in_place is None else self.in_place
