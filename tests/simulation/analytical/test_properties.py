"""What holds for every cluster, division and size: finite times that grow with bytes and shrink with bandwidth."""

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from simulation.analytical.collective_time import CollectiveTimes
from simulation.analytical.machine import Cluster, Division, Overlaps, Question
from simulation.analytical.placement import place, ranks_and_stride
from simulation.analytical.repairs import ALL_SWITCHABLE
from tests.tiers import samples
from workloads.formats.simai_text import ALL, COLLECTIVES, DP, DP_EP, EMBEDDING, EP, EP_TP, PP, TP

GROUPS = (TP, EP, EP_TP, DP, DP_EP, ALL, PP, EMBEDDING)


@st.composite
def questions(draw: st.DrawFn) -> Question:
    tp, ep, pp = (draw(st.integers(1, 12)) for _ in range(3))
    gpus = tp * ep * pp * draw(st.integers(1, 40))
    cluster = Cluster(
        gpus,
        draw(st.integers(1, 72)),
        draw(st.integers(1, 16)),
        draw(st.floats(1, 2000)),
        draw(st.floats(0.1, 200)),
        draw(st.none() | st.floats(1, 2000)),
        "",
        "",
    )
    return Question(cluster, Division(tp, ep, pp, gpus // (tp * pp), 1, 1, 0), Overlaps(0, 0, 0, 0))


def time(question: Question, collective: str, group: str, size: int) -> float:
    return CollectiveTimes(question, ALL_SWITCHABLE, None).time(collective, group, size, False).chosen.time_us


@settings(max_examples=len(samples(60, 1000)), deadline=None)
@given(questions(), st.sampled_from(COLLECTIVES), st.sampled_from(GROUPS), st.integers(1, 1 << 36), st.integers(1, 8))
def test_times_are_finite_positive_and_grow_with_the_bytes(
    question: Question, collective: str, group: str, size: int, factor: int
) -> None:
    if ranks_and_stride(group, question.division)[0] < 2:
        return
    first, second = (time(question, collective, group, size * times) for times in (1, factor))
    assert 0 < first < math.inf
    assert first <= second * (1 + 1e-9)


@settings(max_examples=len(samples(60, 1000)), deadline=None)
@given(questions(), st.sampled_from(COLLECTIVES), st.sampled_from(GROUPS), st.integers(1, 1 << 36))
def test_more_bandwidth_never_takes_longer(question: Question, collective: str, group: str, size: int) -> None:
    if ranks_and_stride(group, question.division)[0] < 2:
        return
    wider = question.cluster._replace(nvlink=question.cluster.nvlink * 2, nic=question.cluster.nic * 2)
    slow, fast = (time(one, collective, group, size) for one in (question, question._replace(cluster=wider)))
    assert fast <= slow * (1 + 1e-9)


@settings(max_examples=len(samples(100, 2000)), deadline=None)
@given(questions(), st.sampled_from(GROUPS))
def test_the_placement_is_that_of_the_worst_group_counted_rank_by_rank(question: Question, group: str) -> None:
    """Against all groups written out, for groups that tile the ranks."""
    cluster, division = question.cluster, question.division
    ranks, stride = ranks_and_stride(group, division)
    placed = place(group, division, cluster)
    if ranks < 2 or group == EMBEDDING:
        return
    counts = []
    for start in range(0, cluster.gpus, ranks * stride):
        for offset in range(stride):
            servers: dict[int, int] = {}
            for rank in range(ranks):
                server = (start + offset + rank * stride) // cluster.gpus_per_server
                servers[server] = servers.get(server, 0) + 1
            counts.append(servers)
    across = [one for one in counts if len(one) > 1]
    if not across:
        assert (placed.servers, placed.per_server) == (1, ranks)
        return
    assert placed.servers == max(map(len, across))
    fewest = min(min(one.values()) for one in across)
    assert 1 <= placed.per_server <= fewest
    assert placed.per_server == fewest or cluster.gpus_per_server % stride, "exact where the stride divides a server"
    assert placed.nics == cluster.nics_per_server * placed.per_server / cluster.gpus_per_server
