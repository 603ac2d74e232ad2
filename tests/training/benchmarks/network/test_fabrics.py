"""Tiered fabrics: a healthy one raises no alarm, and a bad host, device or link in it is named, and nobody else."""

import itertools
from collections.abc import Iterable
from dataclasses import replace

import pytest

from tests.tiers import NIGHTLY, samples
from tests.training.benchmarks.network.fabrics import FABRICS, Ailment, Fabric, Hashing, Part, steps
from training.benchmarks.network.patterns.tiers import Tiers
from training.benchmarks.network.slow_parts.analysis import Analysis, analyse

PODS = "fat tree of pods"
# Of the fabrics of 32 hosts, which take longest, the one with pods stands for all by day.
USUAL = {name: each for name, each in FABRICS.items() if NIGHTLY or each.hosts <= 16 or name == PODS}
PATTERNS = [(name, "pairs") for name in USUAL] + [(n, "rail_pairs") for n, each in USUAL.items() if each.rails > 1]
BAD = 5
# Within its leaf this host is as slow as others across leaves: only a topology or latency can tell where it stands.
FAULTS = {
    "host": (Ailment(rate={BAD: 0.5}), "host node6"),
    "slower host": (Ailment(rate={BAD: 0.1}), "host node6"),
    "late host": (Ailment(delay_us={BAD: 60.0}), "host node6"),
    "link in a rack": (Ailment(rate={frozenset({0, 1}): 0.2}), "pair node1-node2 alone"),
    "link between racks": (Ailment(rate={frozenset({1, 7}): 0.1}), "pair node2-node8 alone"),
}


def look(fabric: Fabric, ailment: Ailment, seed: int, pattern: str = "pairs", tiers: Tiers | None = None) -> Analysis:
    found = analyse(steps(fabric, ailment, seed, pattern=pattern), slow_percent=15.0, tiers=tiers)
    assert found is not None
    return found


def tiers_of(fabric: Fabric) -> Tiers:
    """The tiers as a topology file tells them."""
    levels = [tier for tier in (0, 1) if len({fabric.block(host, tier) for host in range(fabric.hosts)}) > 1]
    return Tiers(
        blocks=tuple({host: fabric.block(host, tier) for host in range(fabric.hosts)} for tier in levels),
        source="topology",
        names=({number: f"rack leaf{number}" for number in range(fabric.racks)}, {})[: len(levels)],
    )


@pytest.mark.parametrize(("name", "pattern"), PATTERNS)
def test_a_healthy_fabric_raises_no_alarm(name: str, pattern: str) -> None:
    for seed in samples(1, 100):
        found = look(FABRICS[name], Ailment(), seed, pattern)
        assert found.findings == (), f"seed {seed}: {found.sentences}"


def test_pairs_across_two_leaves_of_four_hosts_at_two_to_one_are_no_alarm() -> None:
    """All 16 pairs across the leaves get half of the bandwidth of the 12 pairs within."""
    found = look(FABRICS["2:1, two leaves"], Ailment(), 1)
    assert sum(cell.busbw_gbps.value < 30 for cell in found.groups) == 16
    assert found.sentences[0].startswith("no host or path stands out")
    assert found.remarks == (
        "pairs are compared within tiers: 2 blocks of 4 hosts (learnt from these measurements); of two blocks, nothing"
        " tells whether the uplinks of one are bad",
        "no topology was given: bad uplinks of a rack that does not show in these times are not seen",
    )


# Where nothing tells the tiers, a fault that is no worse than the tiers themselves goes unnamed.
HARD = {"4:1 without latency tiers, in another order", "2:1, two leaves, equal latency"}


SMALL = [name for name, each in FABRICS.items() if name not in HARD and each.hosts <= 20]
# In another order these links lie elsewhere.
CASES = [(name, fault) for name in SMALL for fault in FAULTS if not (FABRICS[name].order and "link" in fault)]


# Every fabric and every fault; make nightly has all of both.
@pytest.mark.parametrize(("name", "fault"), CASES if NIGHTLY else CASES[:: len(FAULTS) + 1])
def test_a_fault_in_a_fabric_is_named_and_nobody_else(name: str, fault: str) -> None:
    ailment, subject = FAULTS[fault]
    for seed in samples(1, 20):
        found = look(FABRICS[name], ailment, seed)
        assert [each.subject for each in found.findings] == [subject], f"seed {seed}: {found.sentences}"


@pytest.mark.nightly
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", [name for name, each in FABRICS.items() if each.hosts > 20])
def test_a_fault_in_a_larger_fabric_is_named_and_nobody_else(name: str, fault: str) -> None:
    test_a_fault_in_a_fabric_is_named_and_nobody_else(name, fault)


# With two racks alone, nothing tells which of them is bad; in a pod of two racks, other pods do.
RACKS = [name for name, each in USUAL.items() if each.racks > 2]
RACK_FAULTS = {
    "slow uplinks": Ailment(uplinks={1: 0.3}),
    "late uplinks": Ailment(uplinks_us={1: 60.0}),
    "all its hosts": Ailment(rate={}),
}


# By day each fabric has one of the faults, in turn.
IN_TURN = zip(RACKS, itertools.cycle(RACK_FAULTS), strict=False)


@pytest.mark.parametrize(("name", "fault"), itertools.product(RACKS, RACK_FAULTS) if NIGHTLY else IN_TURN)
def test_the_hosts_of_a_bad_rack_are_one_finding(name: str, fault: str) -> None:
    fabric, ailment = FABRICS[name], RACK_FAULTS[fault]
    own = tuple(host for host in range(fabric.hosts) if fabric.block(host, 0) == 1)
    if fault == "all its hosts":
        ailment = Ailment(rate=dict.fromkeys(own, 0.4))
    for seed in samples(1, 20):
        found = look(fabric, ailment, seed, tiers=tiers_of(fabric))
        named = [(each.part, each.node_ranks, each.device) for each in found.findings]
        assert named == [("rack", own, "rack leaf1")], f"seed {seed}: {found.sentences}"
        assert found.findings[0].drained_hosts == ()


@pytest.mark.parametrize("name", [name for name, each in FABRICS.items() if NIGHTLY or each.hosts <= 16])
def test_a_healthy_fabric_whose_topology_is_known_raises_no_alarm(name: str) -> None:
    for seed in samples(1, 100):
        found = look(FABRICS[name], Ailment(), seed, tiers=tiers_of(FABRICS[name]))
        assert found.findings == (), f"seed {seed}: {found.sentences}"


def test_two_bad_hosts_of_a_rack_are_two_hosts() -> None:
    fabric = FABRICS["fat tree"]
    found = look(fabric, Ailment(rate={4: 0.4, 5: 0.4}), 1, tiers=tiers_of(fabric))
    assert [each.subject for each in found.findings] == ["host node5", "host node6"]


def test_a_bad_leaf_of_one_rail_is_named_with_its_rail() -> None:
    fabric = Fabric(3, 4, rails=4)
    bad: dict[Part, float] = {(host, "rail 2"): 0.4 for host in range(4, 8)}
    (finding,) = look(fabric, Ailment(rate=bad), 1, "rail_pairs", tiers_of(fabric)).findings
    assert (finding.part, finding.node_ranks, finding.device) == ("rack", (4, 5, 6, 7), "rack leaf1 rail 2")


def thinned(names: Iterable[str]) -> list[tuple[str, float]]:
    """Each fabric with a speed of its bad uplinks in turn; in make nightly with each."""
    factors = (0.4, 0.6, 0.8)
    if NIGHTLY:
        return [(name, factor) for name in names for factor in factors]
    return list(zip(names, itertools.cycle(factors), strict=False))


NO_RACKS = "no topology was given and no racks show: bad uplinks of a rack are not told from its hosts and paths"
# Racks that a search without a topology does not find, or in parts: three hosts or five at equal latency, and kinds.
UNSEEN = {
    "racks of odd size": (Fabric(5, 3, latency_us=(10.0, 10.0, 10.0)), False),
    "more racks of odd size": (Fabric(7, 5, latency_us=(10.0, 10.0, 10.0)), False),
    "older hosts in every rack at 2:1": (FABRICS["2:1, four leaves"], True),
}


@pytest.mark.parametrize(("name", "factor"), thinned(n for n in UNSEEN if NIGHTLY or "more" not in n))
def test_where_bad_uplinks_are_not_seen_the_answer_says_so(name: str, factor: float) -> None:
    """Every answer without a topology does; one with a topology names the rack and has nothing left to say."""
    fabric, is_mixed = UNSEEN[name]
    own, older = tuple(h for h in range(fabric.hosts) if fabric.block(h, 0) == 1), range(0, fabric.hosts, 3)
    kinds = {h: "NVIDIA A100" if h in older else "NVIDIA H100" for h in range(fabric.hosts)} if is_mixed else None
    rate: dict[Part, float] = dict.fromkeys(older, 0.5) if is_mixed else {}
    for seed in samples(1, 20):
        values = steps(fabric, Ailment(rate=rate, uplinks={1: factor}), seed)
        found = analyse(values, slow_percent=15.0, kinds=kinds)
        assert found is not None
        is_seen = [each.node_ranks for each in found.findings] == [own]
        assert is_seen or "bad uplinks of a" in "; ".join(found.sentences), f"seed {seed}: {found.sentences}"
        assert any(each.startswith("no topology was given") for each in found.remarks)
        told = analyse(values, slow_percent=15.0, tiers=tiers_of(fabric), kinds=kinds)
        assert told is not None and not any("no topology" in each for each in told.remarks)
        assert is_mixed or [each.node_ranks for each in told.findings] == [own], f"seed {seed}: {told.sentences}"


@pytest.mark.parametrize("factor", [0.3, *([0.4] if NIGHTLY else [])])
def test_bad_uplinks_of_a_rack_of_mixed_hosts_take_no_host_out_of_service(factor: float) -> None:
    fabric, older = UNSEEN["racks of odd size"][0], range(0, 15, 3)
    kinds = {h: "NVIDIA A100" if h in older else "NVIDIA H100" for h in range(fabric.hosts)}
    for seed in samples(1, 20):
        values = steps(fabric, Ailment(rate=dict.fromkeys(older, 0.5), uplinks={1: factor}), seed)
        found = analyse(values, slow_percent=15.0, kinds=kinds)
        assert found is not None
        assert not any(each.drained_hosts for each in found.findings), f"seed {seed}: {found.sentences}"
        assert any("bad towards some hosts alone" in each for each in found.remarks)


# With a tier of latency, and without: 4 of 32 hosts are then "fast within, slow to all others" beside one block of 28.
WITHOUT_TOPOLOGY = {
    "fat tree": FABRICS["fat tree"],
    "fat tree, equal latency": replace(FABRICS["fat tree"], latency_us=(10.0, 10.0, 10.0)),
    "eight leaves, equal latency": Fabric(8, 4, latency_us=(10.0, 10.0, 10.0)),
    "2:1, four leaves": FABRICS["2:1, four leaves"],
    "3:1, racks of odd size": FABRICS["3:1, racks of odd size"],
    PODS: FABRICS[PODS],
}


@pytest.mark.parametrize(
    ("name", "factor"), thinned(name for name, each in WITHOUT_TOPOLOGY.items() if NIGHTLY or each.hosts <= 16)
)
def test_slow_uplinks_of_a_rack_are_a_suspect_rack_without_a_topology(name: str, factor: float) -> None:
    """In the pods, 80 % of the uplinks are within 15 % of the time between pods: there the pod is suspected."""
    fabric = WITHOUT_TOPOLOGY[name]
    own = tuple(host for host in range(fabric.hosts) if fabric.block(host, 0) == 1)
    for seed in samples(1, 30):
        found = look(fabric, Ailment(uplinks={1: factor}), seed)
        (finding,) = found.findings
        assert finding.part == "rack" and finding.drained_hosts == () and finding.device.startswith("suspect ")
        expected = {own} if (name, factor) != (PODS, 0.8) else {own, tuple(range(8))}
        assert finding.node_ranks in expected, f"seed {seed}: {found.sentences}"


def test_uplinks_that_suffice_while_their_rack_is_not_busy_are_the_racks_and_no_host_s() -> None:
    """Of five hosts two at most meet each other in a round: three pairs that leave the rack are not slow."""
    fabric, own = Fabric(6, 5), (0, 1, 2, 3, 4)
    for seed in samples(1, 20):
        for tiers in (None, tiers_of(fabric)):
            found = look(fabric, Ailment(uplinks={0: 0.6}), seed, tiers=tiers)
            assert [(each.part, each.node_ranks) for each in found.findings] == [("rack", own)], found.sentences


def test_paths_that_leave_a_bad_rack_are_not_named_beside_it() -> None:
    """They are the slower the more of them there are at once."""
    fabric = Fabric(5, 7)
    (finding,) = look(fabric, Ailment(uplinks={1: 0.8}), 901, tiers=tiers_of(fabric)).findings
    assert (finding.part, finding.node_ranks) == ("rack", tuple(range(7, 14)))


def test_hosts_that_are_slow_towards_a_bad_rack_alone_are_not_named_beside_it() -> None:
    """Its neighbours in the pod have four pairs each with it, and these alone show it: latency hides the others."""
    found = look(FABRICS[PODS], Ailment(uplinks={1: 0.8}), 17)
    assert [(each.part, each.node_ranks) for each in found.findings] == [("rack", (4, 5, 6, 7))], found.sentences


def test_of_two_racks_it_is_said_that_neither_can_be_judged() -> None:
    found = look(FABRICS["2:1, two leaves"], Ailment(uplinks={1: 0.5}), 1)
    assert found.findings == () and "of two blocks, nothing tells whether the uplinks" in found.remarks[0]


@pytest.mark.parametrize("name", ["rail-optimised", "rail-optimised, 2:1"])
def test_a_bad_device_is_named_and_not_its_host_or_rail(name: str) -> None:
    found = look(FABRICS[name], Ailment(rate={(BAD, "rail 2"): 0.4}), 1, "rail_pairs")
    (finding,) = found.findings
    assert (finding.part, finding.hosts, finding.device) == ("device", ("node6",), "rail 2")
    assert finding.sentence.startswith("node6 rail 2: all its pairs are ") and finding.drained_hosts == ("node6",)


def test_all_devices_of_a_host_are_the_host_and_all_of_a_rail_the_rail() -> None:
    fabric = FABRICS["rail-optimised"]
    found = look(fabric, Ailment(rate={BAD: 0.5}), 1, "rail_pairs")
    assert [each.subject for each in found.findings] == ["host node6"]
    on_rail: dict[Part, float] = {(k, "rail 3"): 0.5 for k in range(fabric.hosts)}
    (finding,) = look(fabric, Ailment(rate=on_rail), 1, "rail_pairs").findings
    assert (finding.part, finding.device, len(finding.hosts), finding.drained_hosts) == ("rail", "rail 3", 16, ())


def test_a_bad_link_is_named_with_its_rail_or_with_all() -> None:
    fabric = FABRICS["rail-optimised"]
    (every,) = look(fabric, Ailment(rate={frozenset({0, 1}): 0.3}), 1, "rail_pairs").findings
    assert every.subject == "pair node1-node2 alone"


# Draws in which a host was named when each repeat of a path counted as evidence of its own, by repeats.
BLAMED = {
    "fat tree": [(3, 5)],
    PODS: [(1, 5)],
    "2:1, four leaves": [(27, 5), (47, 3)],
    "2:1 and 4:1": [(13, 3), (18, 5)],
    "3:1, racks of odd size": [(4, 5)],
}


@pytest.mark.parametrize("name", [name for name in BLAMED if name in USUAL])
def test_routes_that_collide_in_every_repeat_blame_no_host(name: str) -> None:
    """5 % of the pairs that leave a rack have half of the rate, in all repeats alike: 100 draws in make nightly."""
    more = [*itertools.product(range(20), (3, 5))] if NIGHTLY else []
    draws = dict.fromkeys(BLAMED[name] + more)
    for seed, repeats in draws:
        values = steps(FABRICS[name], Ailment(), seed, repeats=repeats, hashing=Hashing(0.05))
        found = analyse(values, slow_percent=15.0)
        assert found is not None
        assert {each.part for each in found.findings} <= {"link"}, f"seed {seed}: {found.sentences}"


OLDER = {"flat": Fabric(1, 16), "racks": Fabric(4, 4), "2:1": FABRICS["2:1, four leaves"]}
MANY = {"64, flat": Fabric(1, 64), "64 in racks": Fabric(16, 4, racks_of_pod=4, latency_us=(10.0, 12.0, 14.0))}


@pytest.mark.parametrize("name", [*OLDER, *MANY] if NIGHTLY else ["flat", "racks"])
def test_older_hosts_are_compared_with_their_like(name: str) -> None:
    """A quarter of the hosts, in racks of their own, have half of the rate and are later; then one of each is bad."""
    fabric = (OLDER | MANY)[name]
    old = range(fabric.hosts - fabric.hosts // 4, fabric.hosts)
    kinds = {host: "NVIDIA A100" if host in old else "NVIDIA H100" for host in range(fabric.hosts)}
    factors: dict[Part, float] = dict.fromkeys(old, 0.5)
    late: dict[Part, float] = dict.fromkeys(old, 5.0)
    for seed in samples(1, 20):
        mixed = steps(fabric, Ailment(rate=factors, delay_us=late), seed)
        for tiers in (None, tiers_of(fabric)):
            found = analyse(mixed, slow_percent=15.0, tiers=tiers, kinds=kinds)
            assert found is not None and found.findings == (), f"seed {seed}, {tiers}"
            counts = f"{fabric.hosts - len(old)} x NVIDIA H100, {len(old)} x NVIDIA A100"
            assert found.remarks[0] == f"hosts are compared with hosts of their kind: {counts}"
        bad = Ailment(rate=factors | {2: 0.25, old[1]: 0.2}, delay_us=late)
        found = analyse(steps(fabric, bad, seed), slow_percent=15.0, tiers=tiers_of(fabric), kinds=kinds)
        assert found is not None
        assert {each.subject for each in found.findings} == {"host node3", f"host node{old[1] + 1}"}, f"seed {seed}"


def test_a_pair_that_is_compared_with_no_other_is_named_in_no_way() -> None:
    """A host without another of its kind, in no block, has a single pair with the older hosts across racks."""
    older, alone, fabric = (5, 6, 10, 11, 17, 26, 28), 0, Fabric(6, 5)
    kinds = {host: "NVIDIA A100" if host in older else "NVIDIA H100" for host in range(30)} | {alone: "NVIDIA V100"}
    rate: dict[Part, float] = {**dict.fromkeys(older, 0.5), alone: 0.3}
    late: dict[Part, float] = dict.fromkeys(older, 5.0)
    found = analyse(steps(fabric, Ailment(rate=rate, delay_us=late), 700), slow_percent=15.0, kinds=kinds)
    assert found is not None
    assert found.findings == (), found.sentences
    assert found.remarks[1].endswith("in no block: node1")


def test_routes_that_collide_at_times_blame_no_host() -> None:
    """Each repeat draws again: one of the 96 paths collides in all three with a chance of 1 - (1 - 0.05^3)^96 = 1 %."""
    links = 0
    for seed in samples(2, 100):
        values = steps(FABRICS["fat tree"], Ailment(), seed, hashing=Hashing(0.05, is_fixed=False))
        found = analyse(values, slow_percent=15.0)
        assert found is not None
        assert {each.part for each in found.findings} <= {"link"}, f"seed {seed}: {found.sentences}"
        links += len(found.findings)
    assert links <= 4, "more than 4 of 100 are drawn with a chance under 1 %"


def test_a_bad_host_is_named_among_routes_that_collide() -> None:
    for seed in samples(1, 30):
        values = steps(FABRICS["fat tree"], Ailment(rate={BAD: 0.4}), seed, hashing=Hashing(0.05))
        found = analyse(values, slow_percent=15.0)
        assert found is not None
        assert [each.subject for each in found.findings if each.part != "link"] == ["host node6"], found.sentences


def test_slow_uplinks_are_the_rack_on_all_its_rails_and_not_one_finding_each() -> None:
    fabric = Fabric(3, 4, rails=4)
    (finding,) = look(fabric, Ailment(uplinks={1: 0.25}), 1, "rail_pairs", tiers_of(fabric)).findings
    assert (finding.part, finding.node_ranks, finding.device) == ("rack", (4, 5, 6, 7), "rack leaf1")


# What is bad in one direction, and who is named: with both orders of each pair, the host or the path itself.
DIRECTIONS: dict[str, tuple[dict[Part, float], set[str]]] = {
    "healthy": ({}, set()),
    "receives slowly": ({(BAD, "receiving"): 0.5}, {"host node6 receiving"}),
    "sends slowly": ({(BAD, "sending"): 0.5}, {"host node6 sending"}),
    "the first, which one order lets only send": ({(0, "receiving"): 0.5}, {"host node1 receiving"}),
    "both": ({BAD: 0.5}, {"host node6"}),
    "two hosts": ({(2, "sending"): 0.4, (9, "receiving"): 0.5}, {"host node3 sending", "host node10 receiving"}),
    "a path in one direction": ({(6, 3): 0.3}, {"pair node7-node4 one way alone"}),
    "a path in both": ({frozenset({3, 6}): 0.3}, {"pair node4-node7 alone"}),
}
ONE_WAY = {"flat": Fabric(1, 12), "fat tree": FABRICS["fat tree"], "2:1, four leaves": FABRICS["2:1, four leaves"]}


@pytest.mark.parametrize("name", ONE_WAY if NIGHTLY else ["flat"])
@pytest.mark.parametrize("fault", DIRECTIONS)
def test_one_direction_of_a_host_is_named_where_messages_go_one_way(name: str, fault: str) -> None:
    fabric, (rate, subjects) = ONE_WAY[name], DIRECTIONS[fault]
    for seed in samples(1, 10):
        values = steps(fabric, Ailment(rate=rate), seed, one_way=True)
        found = analyse(values, slow_percent=15.0, tiers=tiers_of(fabric))
        assert found is not None
        assert {each.subject for each in found.findings} == subjects, f"seed {seed}: {found.sentences}"
        hosts = {subject.split()[1] for subject in subjects if subject.startswith("host")}
        assert {host for each in found.findings for host in each.drained_hosts} == hosts


def test_a_device_that_receives_slowly_is_named_with_its_direction() -> None:
    fabric = FABRICS["rail-optimised"]
    values = steps(fabric, Ailment(rate={(BAD, "rail 2 receiving"): 0.4}), 1, pattern="rail_pairs", one_way=True)
    found = analyse(values, slow_percent=15.0)
    assert found is not None and [each.subject for each in found.findings] == ["node6 rail 2 receiving"]


def test_too_many_links_are_told_once_and_none_is_named_beside() -> None:
    """Two late paths are few; with six slow ones they are too many for 16 hosts."""
    slow: dict[Part, float] = {frozenset({k, 15 - k}): 0.3 for k in range(6)}
    late: dict[Part, float] = {frozenset({6, 9}): 60.0, frozenset({7, 8}): 60.0}
    found = analyse(steps(Fabric(1, 16), Ailment(rate=slow, delay_us=late), 1), slow_percent=15.0)
    assert found is not None and found.findings == ()
    no_racks, remark = found.remarks
    assert no_racks == NO_RACKS and remark.startswith("8 of 120 pairs have a bad latency or bandwidth")
    assert "too many for bad links" in remark


def test_bad_paths_that_share_a_host_name_that_host_in_a_remark() -> None:
    """Three of 31 pairs of a host do not blame it, but who looks for the cause begins there."""
    slow: dict[Part, float] = {frozenset({4, other}): 0.4 for other in (0, 9, 20)}
    found = analyse(steps(Fabric(1, 32), Ailment(rate=slow), 1), slow_percent=15.0)
    assert found is not None and {each.part for each in found.findings} == {"link"}
    assert found.remarks == (
        NO_RACKS,
        "3 paths are bad alone, with an end in common: node5; too few of its pairs to blame the host",
    )
