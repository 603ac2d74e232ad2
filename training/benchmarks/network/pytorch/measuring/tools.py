"""Runs ml-engineering's comparisons: all_gather_object against a tensor collective, one large message against many."""

import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from common.bandwidth import CONVENTION
from training.benchmarks.driver.workload.memory import smallest_available_bytes
from training.benchmarks.driver.workload.run_context import WorkloadContext
from training.benchmarks.driver.workload.team import Team
from training.benchmarks.network.pytorch.choices import DEFAULT_SIZES, ELEMENT_BYTES, PARTS
from training.benchmarks.network.pytorch.config import Config
from training.benchmarks.network.pytorch.measuring.memory import refuse_too_large
from training.benchmarks.network.pytorch.measuring.output import Output
from training.benchmarks.network.pytorch.measuring.stepping import StepsOfAll, measured_once
from training.benchmarks.network.pytorch.operations.collectives import Collective
from training.benchmarks.network.pytorch.operations.reductions import AllReduce

# The tool sends 4 GB, or a quarter of the free memory if that is less.
_TOTAL_BYTES = 4_000_000_000
_MEMORY_SHARE = 4
# The scripts make 1000 calls; ours make as many with 100 iterations.
_CALLS_PER_ITERATION = 10


MOST_FLAGS = 1 << 31


class ObjectFlags(Collective):
    """Every rank sends every other a number, another one after each refill, by all_gather_object, which pickles it."""

    name, variant = "all_gather", "all_gather_object"

    def __init__(self, team: Team) -> None:
        self.team = team
        self.found: list[int] = []
        self.iteration = 0

    def number(self, rank: int) -> int:
        """The number that a rank sends in this iteration."""
        return (self.iteration * self.team.size + rank) % MOST_FLAGS

    def memory_bytes(self, size_bytes: int) -> int:
        """0 bytes: the numbers need no buffers worth counting."""
        return 0

    def prepare(self, size_bytes: int) -> int:
        """Bytes of the numbers as int32, one per rank."""
        return 4 * self.team.size

    def refill(self) -> None:
        """Discard the last result."""
        self.iteration += 1
        self.found = [-1] * self.team.size

    def send(self) -> None:
        """The operation alone: nobody reads the answer."""
        dist.all_gather_object(self.found, self.number(self.team.rank))

    def run(self) -> None:
        self.send()

    def wrong_elements(self) -> torch.Tensor | None:
        wrong = sum(each != self.number(place) for place, each in enumerate(self.found))
        return torch.tensor(wrong, dtype=torch.int64, device=self.team.device)


class GatheredFlags(ObjectFlags):
    """The same by all_gather of a tensor; the host reads the answer, as the caller of all_gather_object can."""

    variant = "tensor"

    def __init__(self, team: Team) -> None:
        super().__init__(team)
        self._own = torch.tensor([team.rank], dtype=torch.int32, device=team.device)
        self._all = [torch.empty_like(self._own) for _ in team.ranks]

    def refill(self) -> None:
        """Discard the last result and write this iteration's number."""
        super().refill()
        self._own.fill_(self.number(self.team.rank))

    def send(self) -> None:
        dist.all_gather(self._all, self._own, group=self.team.handle)

    def run(self) -> None:
        self.send()
        self.found = torch.cat(self._all).tolist()


class SummedFlags(ObjectFlags):
    """Adds what each rank sets anew to say that it is done, by all_reduce of a tensor; the host reads the answer."""

    name, variant = "all_reduce", "tensor"

    def __init__(self, team: Team) -> None:
        super().__init__(team)
        self._flag = torch.empty(1, dtype=torch.int32, device=team.device)
        self._sum = -1

    def prepare(self, size_bytes: int) -> int:
        """Bytes of the flag."""
        return self._flag.element_size()

    def refill(self) -> None:
        """Discard the sum."""
        super().refill()
        self._sum = -1

    def flag(self) -> int:
        """The flag that each rank adds in this iteration."""
        return 1 + self.iteration % 1000

    def send(self) -> None:
        dist.all_reduce(self._flag, group=self.team.handle)

    def run(self) -> None:
        self._flag.fill_(self.flag())
        self.send()
        self._sum = int(self._flag)

    def wrong_elements(self) -> torch.Tensor | None:
        return torch.tensor(int(self._sum != self.team.size * self.flag()), dtype=torch.int64, device=self.team.device)


class AllReduceInParts(AllReduce):
    """all_reduce of the same data in PARTS messages, one after the other."""

    def allocate(self) -> None:
        """Make the buffers, which the parts share."""
        super().allocate()
        self._parts = torch.tensor_split(self.wired, PARTS)

    def run(self) -> None:
        for part in self._parts:
            dist.all_reduce(part, group=self.team.handle)


class ToolComparison:
    """One of the tools: two ways to the same result, one step each. All ranks make it together."""

    total_steps = 2

    def __init__(self, run: WorkloadContext[Config]) -> None:
        self._run = run
        self._team = Team.world(run.group)
        self.original: float | None = None
        config = run.config
        if config.tool == "all_reduce_latency_comp":
            dtype = getattr(torch, config.dtype)
            whole = AllReduce(self._team, dtype, config.seed)
            parts = AllReduceInParts(self._team, dtype, config.seed)
            self._config, self._size = config, self._total_bytes(whole)
            self._ways: list[tuple[str, str, Collective]] = [
                ("all_reduce", "1 message", whole),
                ("all_reduce", f"{PARTS} messages", parts),
            ]
        else:
            self._config, self._size = config.model_copy(update={"dtype": "int32", "in_place": False}), 0
            tensor = SummedFlags if config.tool.endswith("all_reduce") else GatheredFlags
            self._ways = [(way.name, way.variant, way) for way in (ObjectFlags(self._team), tensor(self._team))]

    def _total_bytes(self, whole: AllReduce) -> int:
        """The user's size in bytes, or the tool's 4 GB as far as memory allows, in whole parts."""
        if self._run.config.sizes != DEFAULT_SIZES:
            refuse_too_large(self._run, whole)
            return self._run.config.size_list[0]
        fits = min(_TOTAL_BYTES, smallest_available_bytes(self._run.group) // _MEMORY_SHARE)
        part = PARTS * ELEMENT_BYTES[self._run.config.dtype]
        return max(1, fits // part) * part

    def time_as_the_original(self) -> None:
        """Set `original`: the time of all_gather_object / of the tensor collective as ml-engineering's scripts take it,
        dimensionless; it stays None for the other tool. All ranks call it.

        The calls follow each other without a barrier, and nobody reads the tensor: a GPU's is only launched.
        """
        if not isinstance(self._ways[1][2], ObjectFlags):
            return
        calls = _CALLS_PER_ITERATION * self._config.iterations
        seconds = []
        for _, _, way in self._ways:
            assert isinstance(way, ObjectFlags)
            self._team.barrier()
            begin = time.perf_counter()
            for _ in range(calls):
                way.send()
            seconds.append(time.perf_counter() - begin)
        self.original = seconds[0] / seconds[1]

    def forecast(self, output: Output) -> dict[str, Any]:
        """Nothing: the two ways take seconds."""
        return {}

    def steps(self, output: Output) -> Iterator[dict[str, Any]]:
        """Measure both ways; yields the value of each STEP_END."""
        output.header(self._config.tool, CONVENTION)
        steps = StepsOfAll(self._run, output)
        for step, (name, variant, way) in enumerate(self._ways, start=1):
            place = {"step": step, "total_steps": self.total_steps, "collective": name, "variant": variant}
            value = steps.step(place, partial(measured_once, self._config, self._team, way, self._size, name))
            # The buffers of both ways might not fit together.
            if isinstance(way, AllReduce):
                way.release()
            yield value
