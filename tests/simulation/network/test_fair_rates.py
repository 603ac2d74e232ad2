"""Rates are max-min fair on any network, in plain Python as in compiled code, and as SimGrid has them."""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulation.network.flow_level import fluid
from simulation.network.flow_level.compiled import CompiledFluid, compiled, filled, in_arrays, whole
from simulation.network.flow_level.fluid_state import ACTIVE, ENDED, Fluid, FluidCode, HopColumns, begin
from simulation.network.flow_level.lanes import NO_WINDOW, Costs, LaneBook, Window
from tests.tiers import samples

SIMGRID = Path(__file__).resolve().parents[2] / "data" / "simulation" / "simgrid.json"
ORACLE = Path(__file__).with_name("simgrid_oracle.py")
DEBIAN_PYTHON = Path("/usr/bin/python3")


class Sharing(NamedTuple):
    """Links (bytes per ns each), flows: bytes, and the links of each; the rates that windows leave (none: any)."""

    links: list[float]
    flows: list[tuple[float, list[int]]]
    windows: tuple[float, ...] = ()


@st.composite
def sharings(draw: st.DrawFn) -> Sharing:
    links = draw(st.lists(st.floats(0.01, 100), min_size=1, max_size=8))
    ways = st.lists(st.integers(0, len(links) - 1), min_size=1, max_size=4, unique=True)
    flows = draw(st.lists(st.tuples(st.floats(1, 1e6), ways), min_size=1, max_size=16))
    return Sharing(links, flows)


@st.composite
def windowed(draw: st.DrawFn) -> Sharing:
    sharing = draw(sharings())
    count = len(sharing.flows)
    return sharing._replace(windows=tuple(draw(st.lists(st.floats(0.001, 100), min_size=count, max_size=count))))


def state_of(sharing: Sharing, *, arrays: bool = False) -> Fluid:
    """The flows before they begin; each is a hop of one step, all of which are issued."""
    book, count = LaneBook(), len(sharing.flows)
    lanes = []
    for number, (_size, way) in enumerate(sharing.flows):
        window = Window(1 / sharing.windows[number], 1e-9, 0.0, 0.0) if sharing.windows else NO_WINDOW
        costs = Costs((), (), (), 0.0, 0.0, window)
        lanes.append(book.add([(link, 1 / sharing.links[link], 0) for link in way], [], [], costs, 1))
    none, nothing = [0] * count, [0.0] * count
    columns = HopColumns(
        [1] * count, [size for size, _way in sharing.flows], lanes, nothing, nothing, none, [1] * count,
        [-1] * count, none, nothing, [[] for _flow in lanes], [1] * count,
    )  # fmt: skip
    state = begin(columns, book.columns(), [count], [], filled if arrays else lambda value, count: [value] * count)
    return in_arrays(state) if arrays else state


def rates(sharing: Sharing) -> list[float]:
    """The rate of each flow (bytes per ns) while all are active."""
    state = state_of(sharing)
    for flow in range(len(sharing.flows)):
        fluid.start(state, flow)
    fluid.share_out(state)
    assert state.counts[ACTIVE] == len(sharing.flows)
    return list(state.rate)


def ends(sharing: Sharing, *, arrays: bool = False) -> list[float]:
    """When each flow ends (ns), in lists by plain Python, in `arrays` by compiled code."""
    state = state_of(sharing, arrays=arrays)
    flows = [*range(len(sharing.flows))]
    code: FluidCode = CompiledFluid(state, compiled()) if arrays else fluid
    code.issue(state, whole(flows) if arrays else flows, 0.0)
    code.run(state, fluid.FOREVER, 10_000)
    assert state.counts[ENDED] == 1
    return [float(each) for each in state.end]


@settings(max_examples=len(samples(150, 2000)), deadline=None)
@given(sharings(), st.data())
def test_rates_that_follow_each_change_are_those_of_a_fresh_start(sharing: Sharing, data: st.DataObject) -> None:
    long = sharing._replace(flows=[(1e9, way) for _size, way in sharing.flows])
    state = state_of(long)
    for flow in range(len(long.flows)):
        fluid.start(state, flow)
        fluid.share_out(state)
    for flow in data.draw(st.lists(st.integers(0, len(long.flows) - 1), unique=True)):
        before = state.active[: state.counts[ACTIVE]]
        state.left[before.index(flow)] = 0.0
        fluid.drain(state)
        left = state.active[: state.counts[ACTIVE]]
        assert left == [each for each in before if each != flow]
        if left:
            fluid.share_out(state)
            fresh = rates(long._replace(flows=[long.flows[each] for each in left]))
            assert state.rate[: len(left)] == pytest.approx(fresh, rel=1e-6)


@settings(max_examples=len(samples(150, 2000)), deadline=None)
@given(st.one_of(sharings(), windowed()))
def test_no_link_is_over_full_and_each_flow_has_a_full_one_on_which_nobody_is_faster_or_a_full_window(
    sharing: Sharing,
) -> None:
    found = rates(sharing)
    loads = [0.0] * len(sharing.links)
    fastest = [0.0] * len(sharing.links)
    for rate, (_size, way) in zip(found, sharing.flows, strict=True):
        for link in way:
            loads[link] += rate / sharing.links[link]
            fastest[link] = max(fastest[link], rate)
    assert max(loads) <= 1 + 1e-6
    windows = sharing.windows or [float("inf")] * len(found)
    for rate, most, (_size, way) in zip(found, windows, sharing.flows, strict=True):
        assert rate <= most * (1 + 1e-6)
        full = any(loads[link] > 1 - 1e-6 and fastest[link] <= rate * (1 + 1e-6) for link in way)
        assert full or rate == pytest.approx(most)


@settings(max_examples=len(samples(50, 500)), deadline=None)
@given(sharings(), st.randoms(use_true_random=False))
def test_the_order_of_flows_changes_no_rate(sharing: Sharing, order: random.Random) -> None:
    places = list(range(len(sharing.flows)))
    order.shuffle(places)
    shuffled = rates(Sharing(sharing.links, [sharing.flows[place] for place in places]))
    assert shuffled == pytest.approx([rates(sharing)[place] for place in places], rel=1e-6)


@settings(max_examples=len(samples(50, 500)), deadline=None)
@given(sharings(), st.floats(0.1, 10))
def test_a_faster_network_has_faster_flows_in_proportion(sharing: Sharing, factor: float) -> None:
    scaled = Sharing([factor * speed for speed in sharing.links], sharing.flows)
    assert rates(scaled) == pytest.approx([factor * rate for rate in rates(sharing)], rel=1e-6)


@settings(max_examples=len(samples(30, 300)), deadline=None)
@given(st.one_of(sharings(), windowed()))
def test_compiled_code_ends_flows_when_plain_python_does(sharing: Sharing) -> None:
    assert ends(sharing, arrays=True) == ends(sharing)


def cases(count: int, seed: int = 1) -> list[Sharing]:
    """Random networks of a few links and flows; speeds are bytes per ns."""
    source = random.Random(seed)
    found = []
    for _case in range(count):
        links = [source.choice([1.0, 2.5, 5.0, 12.5, 50.0]) for _link in range(source.randint(2, 6))]
        ways = [source.sample(range(len(links)), source.randint(1, min(3, len(links)))) for _flow in range(12)]
        found.append(Sharing(links, [(float(source.randint(1, 100) * 100_000), way) for way in ways]))
    return found


def simgrid(sharing: Sharing) -> list[float]:
    """When SimGrid's flows end (ns)."""
    case = {"links": [speed * 1e9 for speed in sharing.links], "flows": sharing.flows}
    answer = subprocess.run(
        [DEBIAN_PYTHON, ORACLE], input=json.dumps(case), capture_output=True, text=True, check=True
    )  # fmt: skip
    return [1e9 * float(each) for each in json.loads(answer.stdout)]


def test_flows_end_when_those_of_simgrid_did() -> None:
    recorded = json.loads(SIMGRID.read_text(encoding="utf-8"))
    for case, wanted in zip(cases(len(recorded)), recorded, strict=True):
        assert ends(case) == pytest.approx(wanted, rel=1e-4)


@pytest.mark.nightly
def test_flows_end_when_those_of_simgrid_do() -> None:
    if subprocess.run([DEBIAN_PYTHON, "-c", "import simgrid"], capture_output=True, check=False).returncode:
        pytest.skip("Debian's python3-simgrid is not installed")
    for case in cases(40, seed=2):
        assert ends(case) == pytest.approx(simgrid(case), rel=1e-4)
