"""A modelled cluster that runs the cases of an acceptance: device tests, pairs or the search, and all hosts together.

What its hosts measure is drawn; who is suspected of it is the product's own judgement: the search, the analysis of
pairs, the comparison of devices, the drain list of findings.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from protocol.finding import PartFinding
from run_benchmarks.acceptance.case_levels import Known
from run_benchmarks.acceptance.climb import Climb, Looked
from run_benchmarks.acceptance.records import Levels
from run_benchmarks.acceptance.rungs import RUNGS, SOAK, Cases
from run_benchmarks.results.drain import drain_list
from run_benchmarks.results.loading import LoadedRun
from run_benchmarks.results.outcomes import findings_in
from run_benchmarks.results.records import CaseRecord, NodeRecord, RoundRecord, RunRecord, Verdict
from tests.run_benchmarks.results.network_rounds import a_round, case
from tests.training.benchmarks.network import simulation
from tests.training.benchmarks.network.adaptive_simulation import Cluster, Faults
from tests.training.benchmarks.network.fabrics import Ailment, Fabric, Part
from tests.training.benchmarks.network.fabrics import steps as fabric_steps
from tests.training.benchmarks.network.simulation import LATE, QUIET, SIZES, SLOW_PERCENT, WINDOW, Fault
from tests.training.benchmarks.network.synthetic import hosts_of
from training.benchmarks.network.patterns.schedule import rounds
from training.benchmarks.network.patterns.topology import Topology
from training.benchmarks.network.slow_parts.analysis import analyse
from training.benchmarks.network.slow_parts.comparison import PeerComparison
from training.benchmarks.network.slow_parts.findings import told
from training.benchmarks.network.slow_parts.ground import ground_of, searched
from training.benchmarks.network.slow_parts.judge import Bounds
from training.benchmarks.network.slow_parts.search_rows import finding_of

DEVICES, ONE = 8, 5
TESTS = {"matmul_bf16": (700.0, "TFLOPS"), "memory": (3000.0, "GB/s"), "host_to_device": (50.0, "GB/s")}
SLOW_NIC, SLOW_GPU, LATE_HOST, LOSSY, ONE_RAIL = 0.7, 0.85, 50.0, 0.002, 0.5
"""The five ways: share of the NIC's rate, of a device's; microseconds; share of packets lost; share of one rail."""


@dataclass(frozen=True, kw_only=True)
class Bad:
    """Hosts that are bad, by the way in which they are. slow_gpus: share of the speed of one device in all tests.
    rails: share of the rate of ONE of its DEVICES rails, each its device's own: all ranks wait for it.
    switches, training, soak: share of the speed of all hosts together on the network, in a training, and in its soak.
    """

    slow_gpus: Mapping[str, float] = field(default_factory=dict)
    rate: Mapping[str, float] = field(default_factory=dict)
    delay_us: Mapping[str, float] = field(default_factory=dict)
    packets: Mapping[str, float] = field(default_factory=dict)
    rails: Mapping[str, float] = field(default_factory=dict)
    switches: float = 1.0
    training: float = 1.0
    soak: float = 1.0

    @property
    def truth(self) -> set[str]:
        return {*self.slow_gpus, *self.slowest, *self.delay_us, *self.packets}

    @property
    def slowest(self) -> dict[str, float]:
        """Share of the rate of the slowest rail."""
        return {**self.rate, **self.rails}


def five_bad(hosts: Sequence[str], seed: int) -> Bad:
    """One host of each of the five ways."""
    nic, gpu, late, lossy, rail = random.Random(seed).sample(list(hosts), 5)
    return Bad(
        slow_gpus={gpu: SLOW_GPU},
        rate={nic: SLOW_NIC},
        rails={rail: ONE_RAIL},
        delay_us={late: LATE_HOST},
        packets={lossy: LOSSY},
    )


class SimulatedCluster:
    """Answers Climb.run; `rounds` counts what all hosts did together, a repeated round once. all_devices: a host with
    slow devices has no other.
    """

    def __init__(self, bad: Bad, seed: int) -> None:
        self._bad, self._seed = bad, seed
        self.rounds = 0
        self.all_devices = False

    def run(self, name: str, cases: Cases, hosts: Sequence[str], seconds: int) -> LoadedRun:
        """Run cases on simulated hosts."""
        self._seed += 1
        found: dict[str, list[RoundRecord]] = {}
        for title, definition in cases.items():
            own = definition["hosts"]
            record = _record(own, *self._measured(title, definition, own))
            like = case(model=definition["model"]).model_copy(update={"nnodes": len(own), "nproc": DEVICES})
            findings, problems = findings_in(like, record)
            assert not problems, problems
            found[title] = [record.model_copy(update={"findings": list[PartFinding](findings)})]
        drain = drain_list(found)
        record_of_run = RunRecord(
            run_id="run1", verdict=Verdict.DEGRADED if drain else Verdict.PASS, exit_code=0, started_ms=0,
            finished_ms=1, command=[], runtime="process", vendor="nvidia", code_digest="", git_revision=None,
            versions={}, hosts=[], drain=drain, cases=[_soak(each) for name, each in cases.items() if name == SOAK],
        )  # fmt: skip
        return LoadedRun(folder=Path(f"run_{name}"), record=record_of_run, rounds=found)

    def climb(self, hosts: Sequence[str], usual: Levels | None = None, cases: Known | None = None) -> Climb:
        """An acceptance of these hosts, through all rungs, against the figures of an earlier one."""
        made = Climb(
            vendor="nvidia",
            nproc=DEVICES,
            hosts=list(hosts),
            budget_s=1e6,
            run=self.run,
            examine=lambda names: Looked(),
            gate=lambda names: Looked(),
            usual=usual or {},
            usual_cases=cases,
        )
        for rung in RUNGS:
            made.step(rung)
        return made

    def _measured(
        self, title: str, definition: Mapping[str, Any], hosts: Sequence[str]
    ) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """Steps and FINISHED's value of a case."""
        if definition["model"] == "base":
            self.rounds += 1
            return self._devices(hosts), {}
        if definition["config"] == "config_adaptive":
            return [], self._search(hosts)
        if definition["overrides"].get("pattern") == "rail_pairs":
            return self._rails(hosts, definition["overrides"]["repeats"])
        if definition["model"] == "network" and definition["overrides"].get("pattern") != "all":
            return self._pairs(hosts, definition["overrides"]["repeats"])
        self.rounds += 1
        return self._together(title, definition)

    def _together(self, title: str, definition: Mapping[str, Any]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """One figure of all hosts, which accuses none: GB/s of a collective, or samples/s of a training."""
        around = 1 + 0.01 * random.Random(self._seed).gauss(0, 1)
        if definition["model"] != "network":
            rate = 100 * (self._bad.soak if title == SOAK else self._bad.training) * around
            ends = {f"throughput(ips)_steady{end}": rate * by for end, by in (("", 1), ("_low", 0.98), ("_high", 1.02))}
            return [], ends | {"step_time_p50": 1 / rate}
        rate = 40 * self._bad.switches * around
        times = {"p25": 0.99 / rate, "p50": 1 / rate, "p75": 1.01 / rate}
        return [{"pattern": "all", "size_bytes": 1 << 26, "busbw_GBps": rate, "time_us": times}], told(())

    def _devices(self, hosts: Sequence[str]) -> list[dict[str, Any]]:
        draw, steps = random.Random(self._seed), []
        for test, (usual, unit) in TESTS.items():
            values = [usual * (1 + 0.01 * draw.gauss(0, 1)) for _ in range(len(hosts) * DEVICES)]
            for host, share in self._bad.slow_gpus.items():
                if host in hosts:
                    for device in range(DEVICES) if self.all_devices else [5]:
                        values[hosts.index(host) * DEVICES + device] *= share
            steps.append({"test": test, "unit": unit, "values_of_ranks": values})
        return steps

    def _search(self, hosts: Sequence[str]) -> dict[str, Any]:
        place = {host: (number,) for number, host in enumerate(hosts)}

        def of_places(values: Mapping[str, float]) -> dict[tuple[int, ...], float]:
            return {place[host]: value for host, value in values.items() if host in place}

        bad = self._bad
        faults = Faults(rate=of_places(bad.slowest), delay_us=of_places(bad.delay_us), packets=of_places(bad.packets))
        cluster = Cluster(QUIET, faults, self._seed)
        comparison = PeerComparison(Bounds(slow_percent=SLOW_PERCENT, late_percent=LATE))
        steps = searched(ground_of(range(len(hosts)), Topology()), comparison, "hosts")
        this_round = next(steps)
        while True:
            try:
                this_round = steps.send(cluster.measure(this_round))
            except StopIteration as end:
                result = end.value[0]
                break
        self.rounds += result.rounds
        return told([finding_of(each, hosts, SIZES) for each in result.bad])

    def _pairs(self, hosts: Sequence[str], repeats: int) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        names = {host: f"node{number + 1}" for number, host in enumerate(hosts)}

        def by_name(values: Mapping[str, float]) -> dict[str, float]:
            return {names[host]: value for host, value in values.items() if host in names}

        bad = self._bad
        fault = Fault(rate=by_name(bad.slowest), delay_us=by_name(bad.delay_us), packets=by_name(bad.packets))
        self.rounds += len(list(rounds("pairs", hosts_of(len(hosts)))))
        steps = simulation.steps(len(hosts), QUIET, fault, self._seed, repeats=repeats)
        found = analyse(steps, slow_percent=SLOW_PERCENT)
        return steps, told(found.findings if found else ())

    def _rails(self, hosts: Sequence[str], repeats: int) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """Each rail by itself. A NIC that loses packets sends as many again as simulation.py says."""
        bad, place = self._bad, {host: number for number, host in enumerate(hosts)}
        again = {host: (1 - lost) / (1 + lost * (WINDOW - 1)) for host, lost in bad.packets.items()}
        rate: dict[Part, float] = {place[host]: by for host, by in {**bad.rate, **again}.items() if host in place}
        rate |= {(place[host], f"rail {ONE}"): by for host, by in bad.rails.items() if host in place}
        delay: dict[Part, float] = {place[host]: us for host, us in bad.delay_us.items() if host in place}
        self.rounds += len(list(rounds("rail_pairs", hosts_of(len(hosts)))))
        fabric = Fabric(1, len(hosts), rails=DEVICES)
        steps = fabric_steps(fabric, Ailment(rate, delay), self._seed, repeats=repeats, pattern="rail_pairs")
        found = analyse(steps, slow_percent=SLOW_PERCENT)
        return steps, told(found.findings if found else ())


def _soak(definition: Mapping[str, Any]) -> CaseRecord:
    return case(definition["model"], **definition["overrides"]).model_copy(update={"name": SOAK, "folder": SOAK})


def _record(hosts: Sequence[str], steps: list[dict[str, Any]], metrics: Mapping[str, Any]) -> RoundRecord:
    node = a_round([]).nodes[0]
    nodes: list[NodeRecord] = []
    for number, host in enumerate(hosts):
        ranks = list(range(number * DEVICES, (number + 1) * DEVICES))
        nodes.append(node.model_copy(update={"host": host, "node_rank": number, "ranks": ranks}))
    return a_round(steps, **metrics).model_copy(update={"nodes": nodes})
