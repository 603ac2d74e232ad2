"""Settings of the network benchmark. Imports no torch: the controller validates case configs with it."""

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field, ValidationInfo, field_validator

from common.units import format_size, parse_sizes
from protocol.case_config import MemoryNeed
from training.benchmarks.network.hosts.links import link
from training.benchmarks.network.patterns.schedule import ConcurrentGroups, HostRanks, rounds
from training.benchmarks.network.pytorch.choices import DEFAULT_SIZES, PAIRWISE, SWEEPS, Pattern
from training.benchmarks.network.pytorch.message_config import MessageConfig
from training.benchmarks.network.slow_parts.adaptive import LEAST_HOSTS, Search
from training.benchmarks.network.slow_parts.analysis import PAIR_PATTERNS
from training.benchmarks.network.slow_parts.figures import LATENCY_BYTES
from training.benchmarks.network.slow_parts.judge import LATE_PERCENT, Bounds

ENTRY_MODULE = "training.benchmarks.network"


_CHOOSING = ("pairs", "halves", "k_batch", "adaptive")
_NEEDS = {
    "ranks_per_host": (
        "pattern", _CHOOSING, "only pairs, halves, k_batch and adaptive choose ranks; leave ranks_per_host out"
    ),
    "search": (
        "pattern", ("adaptive",), "only the pattern adaptive searches; leave search out, or set pattern = 'adaptive'"
    ),
    "batch_hosts": (
        "pattern", ("k_batch",),
        "only the pattern k_batch has batches; leave batch_hosts out, or set pattern = 'k_batch'",
    ),
    "topology": (
        "pattern", (*PAIR_PATTERNS, "adaptive"),
        f"only the patterns {', '.join(PAIR_PATTERNS)} and adaptive compare by topology; leave topology out",
    ),
    "nccl_tests": (
        "tool", ("nccl_tests",),
        "only the tool nccl_tests runs them; leave nccl_tests out, or set tool = 'nccl_tests'",
    ),
}  # fmt: skip
"""Settings that have an effect beside some values of another one alone: its name, the values, the refusal."""


class Config(MessageConfig):
    """One sweep of one collective over message sizes, by all ranks or by groups; or one of ml-engineering's tools."""

    pattern: Pattern = Field("all", description="which ranks measure together, group by group")
    ranks_per_host: Literal["one", "all"] = Field(
        "all",
        description="who takes part in pairs, halves, k_batch and adaptive: each host's first rank or all its ranks",
    )
    search: Search = Field(
        "hosts", description="what the pattern adaptive searches: bad hosts, or also links, for which every pair meets"
    )
    batch_hosts: int = Field(2, ge=2, description="hosts in a group of the pattern k_batch")
    repeats: int = Field(1, ge=1, description="how often the pattern (adaptive: each round, 3 or more) is measured")
    slow_percent: float = Field(
        15.0, gt=0, lt=100, description="how much slower than the others a host or pair must be to be named"
    )
    late_percent: float = Field(
        LATE_PERCENT, gt=0, description="how much longer than its peers' a host's or pair's small messages must take"
    )
    topology: str | None = Field(
        None, description="file on the first host with the racks of all hosts, for pairs and adaptive; None: learnt"
    )
    nccl_tests: str | None = Field(
        None, description="folder on the hosts with nccl-tests' programs, for tool nccl_tests; None: those on PATH"
    )
    expected_link: str | float | None = Field(
        None, description="the link between hosts: a name of links.json, or its GB/s in one direction"
    )
    expected_links: int = Field(1, ge=1, description="how many such links each host uses in parallel")

    @field_validator("pattern", "repeats")
    @classmethod
    def _tool_sweeps(cls, value: Any, info: ValidationInfo) -> Any:
        tool = info.data.get("tool", "sweep")
        if tool != "sweep" and value not in ("all", 1):
            raise ValueError(f"tool {tool!r} runs once among all ranks; set tool = 'sweep'")
        return value

    @field_validator("pattern")
    @classmethod
    def _one_variant(cls, value: str, info: ValidationInfo) -> str:
        for name, plain in (("in_place", (None, True, False)), ("after_compute_ms", ([],)), ("timing", ("each",))):
            if value != "all" and info.data.get(name, plain[0]) not in plain:
                raise ValueError(f"groups are compared by one time each; leave {name} out, or set pattern = 'all'")
        if value != "all" and info.data.get("root", 0) == "all":
            raise ValueError("groups are compared by one time each; set one root, or pattern = 'all'")
        return value

    @field_validator(*_NEEDS)
    @classmethod
    def _has_an_effect(cls, value: Any, info: ValidationInfo) -> Any:
        key, fitting, refusal = _NEEDS[str(info.field_name)]
        if value != cls.model_fields[str(info.field_name)].default and info.data.get(key) not in fitting:
            raise ValueError(refusal)
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

    @property
    def bounds(self) -> Bounds:
        """From which deviation on a part is named."""
        return Bounds(slow_percent=self.slow_percent, late_percent=self.late_percent)

    @property
    def orders(self) -> tuple[bool, ...]:
        """Whether the second half of a group sends to the first, for each order that is measured.

        Of pairs whose messages go one way both are: else a host's receiving end shows in a part of its pairs alone.
        """
        return (False, True) if self.collective == "send_recv" and self.pattern in PAIR_PATTERNS else (False,)

    def refusal(self, *, nnodes: int, nproc: int) -> str | None:
        hosts = [
            HostRanks(node_rank=node, name=str(node), ranks=tuple(range(node * nproc, (node + 1) * nproc)))
            for node in range(nnodes)
        ]
        try:
            return self.refusal_of(self.rounds_of(hosts), nnodes)
        except ValueError as error:
            return str(error)

    def memory_need(self, *, nnodes: int, nproc: int) -> MemoryNeed | None:
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
        if self.pattern == "adaptive" and len(hosts) < LEAST_HOSTS:
            raise ValueError(f"pattern 'adaptive' needs {LEAST_HOSTS} hosts or more, found {len(hosts)}; set 'pairs'")
        return rounds(self.pattern, hosts, ranks_per_host=self.ranks_per_host, batch_hosts=self.batch_hosts)

    def refusal_of(self, found: Sequence[ConcurrentGroups], nnodes: int) -> str | None:
        """The reason why these rounds cannot be measured, in words; None if they can."""
        smallest = min(len(group.ranks) for each in found for group in each.groups)
        if self.collective in PAIRWISE and smallest < 2:
            return (
                f"collective = {self.collective!r} needs groups of 2 ranks or more;"
                f" pattern {self.pattern!r} makes one of {smallest} here"
            )
        refusal = self.refusal_of_group(smallest)
        if refusal is not None:
            return refusal
        if self.tool == "nccl_tests" and nnodes > 1:
            return "tool 'nccl_tests' runs on 1 host: over several it needs MPI, which is not used here"
        return None

    def refusal_of_group(self, ranks: int) -> str | None:
        """The reason why a group of so many ranks cannot be measured, in words; None if it can."""
        if isinstance(self.root, int) and self.root >= ranks:
            return f"root = {self.root}: there is a group of {ranks} ranks, whose places are 0 to {ranks - 1}"
        if self.collective == "hypercube" and ranks & (ranks - 1):
            return f"collective = 'hypercube' needs a power of two of ranks, and there is a group of {ranks}"
        return None
