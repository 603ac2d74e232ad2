"""Every algorithm, group and size: executed on integers, the flows give the collective's result."""

from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulation.flows.choice import LinkSpeeds
from simulation.flows.collective import FlowWish, MadeFlows, make, make_original
from simulation.flows.command import COLUMNS_1_6, COLUMNS_2_30, RowForm, rows
from simulation.flows.copies import in_copies
from simulation.flows.groups import RankGroup
from simulation.flows.names import OPS, RING_OPS
from simulation.flows.pieces import cut_twice, unit_bytes
from tests.simulation.flows.interpreter import Row, check, parse
from tests.tiers import EXAMPLES_FACTOR, NIGHTLY

UNTIMED = settings(deadline=None)
EXAMPLES = 25 * (EXAMPLES_FACTOR if NIGHTLY else 1)
SPEEDS = LinkSpeeds(370.8, 48.5, True)
COLLECTIVES = [op for op in OPS if op != "SendRecv"]


class Case(NamedTuple):
    """A collective to be checked."""

    op: str
    group: RankGroup
    size: int
    wish: FlowWish


def group_of(servers: list[list[int]], slots: list[list[int]], switches: list[int]) -> RankGroup:
    members = tuple(rank for ranks in servers for rank in ranks)
    return RankGroup("TP", 0, members, tuple(map(tuple, servers)), tuple(map(tuple, slots)), tuple(switches))


ONE_TO_FIVE, TWO_TO_FIVE = st.integers(1, 5), st.integers(2, 5)


@st.composite
def groups(
    draw: st.DrawFn, *, local: st.SearchStrategy[int] = ONE_TO_FIVE, even: bool = False, several: bool = False
) -> RankGroup:
    """Up to four servers with one to five ranks each, whose numbers have no order."""
    count = draw(st.integers(2 if several else 1, 4))
    widths = [draw(local)] * count if even else [draw(local) for _ in range(count)]
    if sum(widths) < 2:
        widths.append(widths[0])
    names = draw(st.permutations(range(sum(widths) + len(widths))))
    servers, slots, begin = [], [], 0
    for width in widths:
        servers.append(list(names[begin : begin + width]))
        slots.append(draw(st.permutations(range(8)))[:width])
        begin += width
    return group_of(servers, slots, list(names[begin:]))


SIZES = st.one_of(
    st.integers(1, 40), st.integers(1, 5000), st.integers(1, 200).map(lambda k: k * 4096), st.integers(1 << 20, 1 << 24)
)


WAYS = [
    *((op, "auto", "auto", False) for op in COLLECTIVES),
    *((op, "ring", "auto", pxn) for op in RING_OPS for pxn in (False, True)),
    ("AllReduce", "tree", "auto", False),
    ("AllReduce", "nvls", "tree", False),
    ("AllReduce", "nvls", "ring", False),
    ("AllGather", "pat", "auto", False),
    ("ReduceScatter", "pat", "auto", False),
    ("AllToAll", "auto", "auto", True),
]


@st.composite
def cases(draw: st.DrawFn, ways: list[tuple[str, str, str, bool]] = WAYS) -> Case:
    op, algorithm, between, pxn = draw(st.sampled_from(ways))
    local = {"nvls": TWO_TO_FIVE, "pat": st.just(1)}.get(algorithm, ONE_TO_FIVE)
    group = draw(groups(local=local, several=algorithm == "pat"))
    return Case(op, group, draw(SIZES), FlowWish(algorithm, pxn, between, SPEEDS))


def text_of(made: MadeFlows, *, original: bool = False) -> str:
    columns = COLUMNS_1_6 if original else COLUMNS_2_30
    begin = "op,1,1,-1," if original else "key,3,1,1,2,"
    return columns + b"".join(rows(made.schedule, RowForm(begin, original))).decode()


@pytest.mark.parametrize("way", WAYS, ids=lambda way: "-".join(map(str, way)))
@settings(deadline=None, max_examples=EXAMPLES)
@given(data=st.data())
def test_the_flows_give_the_collectives_result(way: tuple[str, str, str, bool], data: st.DataObject) -> None:
    case = data.draw(cases([way]))
    made = make(case.op, case.group, case.size, 0, case.wish)
    found = parse(text_of(made))
    check(found, case.op, case.group.members, case.size)
    assert made.schedule.flow_count == len(found)
    assert made.schedule.byte_count == sum(row.size for row in found)


@UNTIMED
@given(st.integers(1, 1 << 40), st.integers(1, 64), st.integers(1, 64))
def test_pieces_lose_no_byte_and_differ_by_a_unit(size: int, blocks: int, channels: int) -> None:
    pieces = [piece for block in cut_twice(size, blocks, channels) for piece in block]
    assert sum(pieces) == size and len(pieces) == blocks * channels
    unit = unit_bytes(size, blocks * channels)
    assert max(pieces) - min(pieces) in (0, unit) and all(piece % unit == 0 for piece in pieces)
    assert min(pieces) > 0 or size < blocks * channels


@UNTIMED
@given(cases())
def test_rows_come_by_source_then_channel_then_id(case: Case) -> None:
    ordered = case._replace(group=_renamed(case.group, sorted(case.group.members), sorted(case.group.switches)))
    found = parse(text_of(make(ordered.op, ordered.group, ordered.size, 0, ordered.wish)))
    places = {rank: place for place, rank in enumerate((*ordered.group.members, *ordered.group.switches))}
    keys = [(row.source, row.channel, row.flow) for row in found]
    if list(places) == sorted(places):
        assert keys == sorted(keys)
    assert [key[1:] for key in keys if key[0] == keys[0][0]] == sorted(key[1:] for key in keys if key[0] == keys[0][0])


def _renamed(group: RankGroup, members: list[int], switches: list[int]) -> RankGroup:
    name = dict(zip((*group.members, *group.switches), (*members, *switches), strict=True))
    servers = [[name[rank] for rank in ranks] for ranks in group.servers]
    return group_of(servers, [list(slots) for slots in group.slots], [name[switch] for switch in group.switches])


@UNTIMED
@given(cases(), st.integers(1, 1000))
def test_a_copy_on_other_ranks_has_the_flows_that_are_made_for_these(case: Case, stride: int) -> None:
    count, switches = len(case.group.members), len(case.group.switches)
    ranks = [range(0, each * count, each) for each in (1, stride)]
    behind_all = 1000 * count
    first, second = (_renamed(case.group, [*each], [*range(behind_all, behind_all + switches)]) for each in ranks)
    schedules = in_copies(lambda op, group, size: make(op, group, size, 0, case.wish).schedule)
    schedules(case.op, first, case.size)
    copy, made = schedules(case.op, second, case.size), make(case.op, second, case.size, 0, case.wish).schedule
    assert copy.like is not None
    assert list(copy.sources) == list(made.sources)
    assert list(copy.flows()) == list(made.flows())


@UNTIMED
@given(cases(), st.integers(0, 1 << 30))
def test_relabelling_ranks_relabels_the_flows(case: Case, seed: int) -> None:
    names = [1000 + (rank * 7919 + seed) % 100_003 for rank in case.group.members]
    switches = [200_000 + switch for switch in case.group.switches]
    other = _renamed(case.group, names, switches)
    label = dict(zip((*case.group.members, *case.group.switches), (*names, *switches), strict=True))
    first = parse(text_of(make(case.op, case.group, case.size, 0, case.wish)))
    second = parse(text_of(make(case.op, other, case.size, 0, case.wish)))
    relabelled = [row._replace(source=label[row.source], target=label[row.target]) for row in first]
    assert sorted(relabelled) == sorted(second)


@UNTIMED
@given(cases(), st.integers(1, 10**6))
def test_ids_begin_where_they_are_told(case: Case, first_id: int) -> None:
    zero = make(case.op, case.group, case.size, 0, case.wish).schedule.flows()
    later = make(case.op, case.group, case.size, first_id, case.wish).schedule.flows()
    moved = [flow._replace(flow_id=flow.flow_id + first_id) for flow in zero]
    found = [flow._replace(parents=tuple(parent - first_id for parent in flow.parents)) for flow in later]
    assert [flow[:-1] for flow in moved] == [flow[:-1] for flow in found]


@UNTIMED
@given(groups(even=True), st.sampled_from([*RING_OPS, "AllToAll"]), st.integers(1, 500), st.booleans())
def test_the_originals_rings_are_right_where_nothing_is_left_over(
    group: RankGroup, op: str, units: int, pxn: bool
) -> None:
    size = units * len(group.members) * group.local_count
    made = make_original(op, group, size, 0, nvls=False, pxn=pxn, gpu_type="A100")
    found = parse(text_of(made, original=True))
    check(found, op, group.members, size)
    flows = list(made.schedule.flows())
    waiting = {(parent, flow.flow_id) for flow in flows for parent in flow.parents}
    assert waiting == {(flow.flow_id, child) for flow in flows for child in flow.children}


RING = make(
    "AllReduce", group_of([[0, 1], [2, 3]], [[0, 1], [0, 1]], [4, 5]), 64, 0, FlowWish("ring", False, "auto", SPEEDS)
)


@pytest.mark.parametrize(
    ("break_it", "said"),
    [
        (lambda rows: rows[1:], "ids have gaps"),
        (lambda rows: [*rows, rows[0]], "not unique"),
        (lambda rows: [row._replace(size=1) for row in rows], "bytes are missing"),
        (
            lambda rows: [row._replace(parents=(row.flow,)) if not row.parents else row for row in rows],
            "data of others|circle",
        ),
        (lambda rows: [row._replace(parents=()) if row.flow == 9 else row for row in rows], "different sizes|missing"),
        (
            lambda rows: [row._replace(target=(row.source + 2) % 4) if row.flow == 3 else row for row in rows],
            "data of others|missing|lacks",
        ),
    ],
)
def test_the_interpreter_finds_what_is_wrong(break_it: object, said: str) -> None:
    assert callable(break_it)
    found: list[Row] = parse(text_of(RING))
    check(found, "AllReduce", (0, 1, 2, 3), 64)
    with pytest.raises(AssertionError, match=said):
        check(break_it(found), "AllReduce", (0, 1, 2, 3), 64)


def test_a_circle_is_found() -> None:
    circle = [Row(0, 0, 0, 1, 64, (1,)), Row(1, 0, 1, 0, 64, (0,))]
    with pytest.raises(AssertionError, match="circle"):
        check(circle, "AllReduce", (0, 1), 64)
