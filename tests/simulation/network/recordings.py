"""The recorded packet-level runs of SimAI's ns-3, and ours of the same command."""

from __future__ import annotations

import argparse
import json
import lzma
from collections import Counter
from functools import cache
from pathlib import Path
from typing import NamedTuple, TypedDict, cast

import numpy as np
from numpy.typing import NDArray

from common.errors import MistakeList
from simulation.network import command
from simulation.network.outcome import NetworkRun
from simulation.network.packets import network_of, simulate
from simulation.network.request import NetworkRequest, read_request

DATA = Path(__file__).resolve().parents[2] / "data" / "simulation" / "ns3"


class Recording(TypedDict):
    """A run: its input, what it counted, and its EndToEnd.csv."""

    name: str
    topology: str
    workload: str
    environment: dict[str, str]
    conf: dict[str, str]
    marks: int
    pauses: int
    nacks: int
    window_bytes: int | None
    max_rtt_ns: int | None
    rate_decreases: int
    deepest_bytes: int | None
    next_hops: list[str] | None
    csv: str
    flows: int
    wall_s: float
    makespans_us: list[float]


class Times(NamedTuple):
    """What is compared, in ns from the first start: makespan, mean over ranks, rank 0, durations of the flows."""

    makespan: float
    mean: float
    zero: float
    durations: NDArray[np.int64]

    @property
    def counted(self) -> Counter[int]:
        return Counter(self.durations.tolist())


@cache
def recordings() -> dict[str, Recording]:
    return {each["name"]: each for each in json.loads((DATA / "index.json").read_text(encoding="utf-8"))}


@cache
def _lines() -> dict[str, list[str]]:
    return cast(dict[str, list[str]], json.loads(lzma.decompress((DATA / "flows.json.xz").read_bytes())))


def lines_of(name: str) -> list[list[str]]:
    """The cells of ns-3's fct.txt."""
    return [line.split() for line in _lines()[name]]


def recorded(name: str) -> Times:
    """What ns-3 measured."""
    cells = lines_of(name)
    source, target = (np.array([(int(each[at], 16) >> 8) & 0xFFFF for each in cells]) for at in (0, 1))
    start, duration = (np.array([int(each[at]) for each in cells]) for at in (5, 6))
    return _times(source, target, start, start + duration)


def arguments(recording: Recording, folder: Path, *more: str) -> list[str]:
    """The options of `network` for a recording; what it changed of SimAI.conf becomes a file in `folder`."""
    environment = recording["environment"]
    words = ["-w", str(DATA / "workload" / recording["workload"]), "-n", str(DATA / "topology" / recording["topology"])]
    words += ["--send-lat", environment.get("AS_SEND_LAT", "6000")]
    words += ["--algorithm", "nvls"] if environment.get("AS_NVLS_ENABLE") == "1" else []
    words += ["--pxn"] if environment.get("AS_PXN_ENABLE") == "1" else []
    if recording["conf"]:
        conf = folder / f"{recording['name']}.conf"
        conf.write_text("".join(f"{key} {value}\n" for key, value in recording["conf"].items()), encoding="utf-8")
        words += ["--conf", str(conf)]
    return [*words, *more]


def request(words: list[str], dialect: str = "simai") -> NetworkRequest:
    """The checked request of a command line."""
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    parser.set_defaults(dialect=dialect, output=None)
    return read_request(parser.parse_args(words), MistakeList())


def ours(recording: Recording, folder: Path, seed: int = 0) -> NetworkRun:
    """Our run of the same command."""
    found = request(arguments(recording, folder))
    return simulated(found, seed)


def simulated(found: NetworkRequest, seed: int = 0) -> NetworkRun:
    """The packet-level run of a request."""
    network = network_of(found.fabric, found.wishes.conf)
    return simulate(network, found.job, found.wishes._replace(seed=seed))


def times_of(run: NetworkRun) -> Times:
    """What is compared, of our run."""
    return _times(run.source, run.target, run.start, run.end)


def _times(
    source: NDArray[np.int64], target: NDArray[np.int64], start: NDArray[np.int64], end: NDArray[np.int64]
) -> Times:
    first = int(start.min())
    ends = np.zeros(int(max(source.max(), target.max())) + 1, np.int64)
    np.maximum.at(ends, source, end)
    np.maximum.at(ends, target, end)
    taking_part = ends > 0
    return Times(
        float(end.max() - first), float(ends[taking_part].mean() - first), float(ends[0] - first), np.sort(end - start)
    )
