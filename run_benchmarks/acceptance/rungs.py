"""Chooses what each rung of an acceptance runs: device tests, the network, one training, by vendor and size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import vendors

HEALTH, SINGLE, NETWORK, WHOLE = "health", "single", "network", "whole"
RUNGS = (HEALTH, SINGLE, NETWORK, WHOLE)
FEWEST = {HEALTH: 1, SINGLE: 1, NETWORK: 2, WHOLE: 1}
"""Hosts that a rung needs."""
ALL_PAIRS = 16
"""Hosts up to which every pair is measured; beyond, the adaptive search needs fewer rounds."""
LEAST_OF_PAIRS = 3
"""Hosts of which the analysis of pairs says something."""
PAIR_REPEATS = 5
"""Of each pair: by three, the analysis misses a bad host among few in one of ten modelled runs; by five, in none."""
LEAST_SOAK, MOST_SOAK_S, SOAK_SHARE = 3, 1800.0, 0.7
"""A soak is at least so many trainings long, takes so many seconds at most, and this share of the time that is left."""
LEAST_SAMPLES = 4096
DATA_TESTS = ("data_read", "data_write")
EVERY_LINK, TOOLS = "ACCEPT_ALL_TO_ALL", "ACCEPT_TOOLS"
"""Cases: that loads every link of the network at once; that runs tools of others."""
PAIRS, ALL_REDUCE, TRAINING = "ACCEPT_PAIRS", "ACCEPT_ALL_REDUCE", "ACCEPT_TRAINING"
"""Cases: of every pair of hosts, or the search; of all together; of the whole cluster."""
RAILS = "ACCEPT_RAILS"
"""Case: of each rail of suspects by itself, beside pairs of all ranks, in which one slow rail slows the whole host."""
BY_RAIL, GOOD_BY_RAIL = 3, 3
"""Suspects of that case, at most, and good hosts beside them: half of all, so that the good ones tell what is usual."""
LATE = "small messages"
"""In the evidence of a host that is late: a slow rail alone does not make it so."""
SOAK = "ACCEPT_SOAK"
"""Case: the training with as many steps as the rest of the budget has room for."""
TOOLS_CONFIG = {HEALTH: "config_quick", SINGLE: "config_host", NETWORK: "config_pairs"}
SHORT_REPEATS, SHORT_STEPS = 3, 3
"""Of a rung that is shrunk: repeats of each pair, and the part of a training's steps (one in so many)."""
LONG_TESTS = ("memory_capacity", "disk_write", "disk_read")
"""Device tests that a shrunk rung leaves out."""
Cases = Mapping[str, dict[str, Any]]
DataPath = tuple[str, str]
"""A folder on the hosts, and where a container sees it."""


@dataclass(frozen=True, kw_only=True)
class Others:
    """Tools of others on a rung's hosts. names: those that are there; missing: sentences on the rest; settings: of
    their config, what only the rest needs, taken back; commands: how they are called, and seconds: what that usually
    takes; inspector: the folder of NCCL Inspector's files of the rung's own collectives.
    """

    names: Sequence[str] = ()
    missing: Sequence[str] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    inspector: str | None = None
    commands: Sequence[str] = ()
    seconds: float = 0.0

    @property
    def calls(self) -> list[str]:
        """The commands, and Inspector where its files are read: acceptances with the same take alike."""
        return [*self.commands, *(["Inspector"] if self.inspector is not None else [])]


NO_OTHERS = Others()
INSPECTOR_MAX_AGE_S = 600.0
"""Of an earlier run files may be left in the folder; those that count were written by the collectives just before."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Configs of a vendor: of the device tests, and of a short training. limit: percent below the peers' median.

    pair_overrides: of the measurement of pairs; sizes: of the collectives of all hosts together; sequences: what a rank
    trains in a step, for which the made-up data has to suffice.
    """

    device_config: str
    device_overrides: Mapping[str, Any]
    training: tuple[str, str]
    training_overrides: Mapping[str, Any]
    pair_overrides: Mapping[str, Any]
    sizes: str
    limit: float
    sequences: int


_CPU = Choice(
    device_config="config_CPUx1x2",
    device_overrides={
        "tests": ["matmul_fp32", "memory", "host_to_device", "training", "disk_write", "disk_read"],
        "iterations": 40,
        "disk_bytes": 32 << 20,
    },
    training=("llama", "config_CPUx1x2"),
    training_overrides={"max_steps": 60, "target_loss": None},
    pair_overrides={"sizes": "8, 1M"},
    sizes="64K, 1M",
    limit=25.0,
    sequences=32,
)
_DEVICES = Choice(
    device_config="config_datasheet",
    device_overrides={
        "tests": [
            "matmul_bf16",
            "matmul_fp32",
            "memory",
            "memory_capacity",
            "host_to_device",
            "device_to_host",
            "peers",
            "training",
            "host_matmul",
            "host_memory",
            "disk_write",
            "disk_read",
        ],
        "min_percent": {},
        "max_percent_below_best": None,
    },
    training=("llama", "config_short_7b"),  # one that all vendors have
    training_overrides={"max_steps": 40, "gradient_accumulation_steps": 4},
    pair_overrides={},
    sizes="1M, 64M, 1G",
    limit=7.0,
    sequences=4,
)


def choice_of(vendor: str) -> Choice:
    """The cases that run on hosts of a vendor: small ones where its ranks compute on the CPU."""
    return _CPU if vendors.load(vendor).device_type == "cpu" else _DEVICES


def stages_of(
    rung: str,
    vendor: str,
    hosts: Sequence[str],
    nproc: int,
    data: Sequence[DataPath] = (),
    tools: Others = NO_OTHERS,
) -> list[Cases]:
    """The cases of a rung on these hosts, by name, as test_conf.py defines them: one run for each stage.

    `data`: folders with the data of the user's own cases, which all hosts read at once; `tools`: after the rung's own
    tests; those of health are all that it runs: its check is no run. The network first by pairs or by search, then
    with all hosts together, so that every link is loaded at once.
    """
    chosen, nnodes = choice_of(vendor), len(hosts)

    def case(model: str, config: str, overrides: Mapping[str, Any]) -> dict[str, Any]:
        common = {"model": model, "framework": "pytorch", "config": config, "repeat": 1, "nnodes": nnodes}
        return {**common, "nproc": nproc, "hosts": list(hosts), "overrides": dict(overrides)}

    def others(before: Mapping[str, Any]) -> list[Cases]:
        """`before`: collectives that Inspector sees; they run again with each occasion of the tools."""
        overrides = {"tools": list(tools.names), "max_percent_behind": chosen.limit, **tools.settings}
        if tools.inspector is not None:
            overrides |= {"inspector_folder": tools.inspector, "inspector_max_age_s": INSPECTOR_MAX_AGE_S}
        elif not tools.names:
            return []
        found = {TOOLS: case("tools", TOOLS_CONFIG[rung], overrides) | {"nproc": 1}}
        return [{**before, **found} if tools.inspector is not None else found]

    if rung == HEALTH:
        return others({})
    if rung == SINGLE:
        found = {"ACCEPT_DEVICES": case("base", chosen.device_config, chosen.device_overrides)}
        tests = {**chosen.device_overrides, "tests": list(DATA_TESTS)}
        for number, (on_host, inside) in enumerate(data, start=1):
            folders = {"data_dir_host": on_host, "data_dir_container": inside}
            found[f"ACCEPT_DATA_{number}"] = case("base", chosen.device_config, tests) | folders
        return [found, *others({})]
    if rung == NETWORK:
        every_pair = nnodes <= ALL_PAIRS
        config = "config_pairs" if every_pair else "config_adaptive"
        pairs = {**chosen.pair_overrides, **({"repeats": PAIR_REPEATS} if every_pair else {})}
        together = {"pattern": "all", "sizes": chosen.sizes, "repeats": 1, "iterations": 10}
        collectives = {
            f"ACCEPT_{name.upper()}": case("network", "config_pairs", {**together, "collective": name})
            for name in ("all_reduce", "all_to_all")
        }
        reduced = {ALL_REDUCE: collectives[ALL_REDUCE]}
        return [{PAIRS: case("network", config, pairs)}, collectives, *others(reduced)]
    model, config = chosen.training
    samples = max(LEAST_SAMPLES, chosen.sequences * nnodes * nproc)
    return [{TRAINING: case(model, config, {**chosen.training_overrides, "train_samples": samples})}]


def with_rails(cases: Cases, vendor: str, hosts: Sequence[str], suspects: Mapping[str, Sequence[str]]) -> Cases:
    """The cases, where they measure pairs, with RAILS of the suspects among the hosts, late ones last: the device of
    each rank has a rail of its own, unless ranks compute on the CPU. suspects: each with the evidence.
    """
    own = [host for host in hosts if host in suspects]
    own = sorted(own, key=lambda host: any(LATE in said for said in suspects[host]))[:BY_RAIL]
    chosen = [*own, *[host for host in hosts if host not in suspects][:GOOD_BY_RAIL]]
    pairs = cases.get(PAIRS)
    if pairs is None or not own or len(chosen) < LEAST_OF_PAIRS or pairs["nproc"] < 2 or choice_of(vendor) is _CPU:
        return cases
    overrides = {**pairs["overrides"], "pattern": "rail_pairs", "repeats": SHORT_REPEATS}
    rails = {"config": "config_pairs", "nnodes": len(chosen), "hosts": chosen, "overrides": overrides}
    return {**cases, RAILS: {**pairs, **rails}}


def shortened(rung: str, stages: Sequence[Cases]) -> list[Cases]:
    """The stages of a rung for all of which the budget has no room."""
    if rung == SINGLE:
        devices = stages[0]["ACCEPT_DEVICES"]
        tests = [test for test in devices["overrides"]["tests"] if test not in LONG_TESTS]
        return [{"ACCEPT_DEVICES": _changed(devices, tests=tests)}]
    if rung == NETWORK:
        pairs, together = (dict(stage) for stage in stages[:2])
        if "repeats" in pairs[PAIRS]["overrides"]:
            pairs[PAIRS] = _changed(pairs[PAIRS], repeats=SHORT_REPEATS)
        del together[EVERY_LINK]
        return [pairs, together]
    return [
        {name: _changed(case, max_steps=case["overrides"]["max_steps"] // SHORT_STEPS) for name, case in stage.items()}
        for stage in stages
    ]


def _changed(case: Mapping[str, Any], **overrides: object) -> dict[str, Any]:
    return {**case, "overrides": {**case["overrides"], **overrides}}


def left_out(full: Sequence[Cases], short: Sequence[Cases]) -> list[str]:
    """All that the short stages of a rung do not look at, or less: cases, tests of a case, and smaller numbers."""
    done = {name: case["overrides"] for stage in short for name, case in stage.items()}
    said = []
    for name, case in ((name, case) for stage in full for name, case in stage.items()):
        if name not in done:
            said.append(f"{name}: not run")
            continue
        for key, value in case["overrides"].items():
            less = done[name][key]
            if isinstance(value, list) and (gone := [each for each in value if each not in less]):
                said.append(f"{name}: without {', '.join(gone)}")
            elif not isinstance(value, list) and value != less:
                said.append(f"{name}: {key} {less} of {value}")
    return said


def soak_times(room_s: float, took_s: float) -> int:
    """How many times as many steps as a training that took `took_s` seconds a soak has in `room_s` seconds; 0: it has
    no room.
    """
    times = int(min(SOAK_SHARE * room_s, MOST_SOAK_S) / max(took_s, 1.0))
    return times if times >= LEAST_SOAK else 0


def soak_of(training: Cases, times: int) -> Cases:
    """The same training with so many times its steps."""
    found = {}
    for case in training.values():
        steps = times * int(case["overrides"]["max_steps"])
        found[SOAK] = {**case, "overrides": {**case["overrides"], "max_steps": steps}}
    return found


def conf_text(own: str, cases: Cases, seconds: int) -> str:
    """A test_conf.py: the user's own text, and after it the cases of a rung and the time that they may take."""
    lines = [own.rstrip(), "", "# What follows was added by `run.py accept`.", f"CASES = {list(cases)!r}"]
    lines += [f"{name} = {definition!r}" for name, definition in cases.items()]
    return "\n".join([*lines, f"RUN_TIME_LIMIT = {seconds}", ""])
