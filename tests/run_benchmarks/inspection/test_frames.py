"""Whose MTU is wrong: an independent model of hosts with an MTU each sends between all, and knows who is bad."""

from collections.abc import Mapping, Sequence

import pytest

from run_benchmarks.inspection.health import judged, parsed, peers_of


def accused(
    mtu: Sequence[int], path: Mapping[tuple[int, int], int] | None = None, silent: str = ""
) -> dict[str, list[str]]:
    """By host what is said of it; mtu: of each host; path: of what lies between two, where that is less; silent: a host
    that tells nothing.
    """
    addresses = [f"10.0.0.{n}" for n in range(len(mtu))]
    healths = {}
    for sender, peers in enumerate(peers_of(addresses)):
        lines = []
        for peer in peers:
            receiver = addresses.index(peer)
            most = min(mtu[sender], mtu[receiver], (path or {}).get((sender, receiver), 9000))
            answer = "passes" if most == mtu[sender] else "lost"
            lines.append(f"frame\t{peer}\teth0\t{mtu[sender]}\t{answer}\t{most}\n")
        healths[f"n{sender}"] = parsed("".join(lines) + "end\tok\n")
    healths.pop(silent, None)
    found: dict[str, list[str]] = {}
    for host, (_, said, _, _, severity) in judged(healths, {a: f"n{n}" for n, a in enumerate(addresses)}):
        assert severity == "failure"
        found.setdefault(host, []).append(said)
    return found


@pytest.mark.parametrize("count", [3, 4, 9, 64, 600])
@pytest.mark.parametrize("bad", [1500, 9600])
def test_the_host_of_another_mtu_is_named_and_not_those_that_send_to_it(count: int, bad: int) -> None:
    found = accused([bad if n == 2 else 9000 for n in range(count)])
    assert [*found] == ["n2"]
    (said,) = found["n2"]
    way = "do not reach it from n" if bad < 9000 else "frames of 9600 bytes on eth0 do not reach n"
    assert way in said and said.endswith(f"those of {min(bad, 9000)} do")


@pytest.mark.parametrize("count", [4, 9, 64, 600])
def test_a_host_of_a_smaller_mtu_is_named_though_its_own_look_gave_nothing(count: int) -> None:
    assert [*accused([1500 if n == 2 else 9000 for n in range(count)], silent="n2")] == ["n2"]


@pytest.mark.parametrize(("count", "bad"), [(6, 2), (8, 3), (64, 5)])
def test_several_are_named(count: int, bad: int) -> None:
    assert set(accused([1500] * bad + [9000] * (count - bad))) == {f"n{n}" for n in range(bad)}


def test_where_no_host_stands_out_the_senders_are_told_of_what_they_lose() -> None:
    """Two hosts; two racks of four behind a switch of a smaller MTU: whose fault it is cannot be known."""
    assert accused([9000, 1500]) == {"n0": ["frames of 9000 bytes on eth0 do not reach n1; those of 1500 do"]}
    across = {(a, b): 1500 for a in range(8) for b in range(8) if (a < 4) != (b < 4)}
    found = accused([9000] * 8, across)
    assert set(found) == {f"n{n}" for n in range(8)}
    assert found["n0"] == ["frames of 9000 bytes on eth0 do not reach n4, n5, n6, n7; those of 1500 do"]


def test_equal_hosts_have_no_finding() -> None:
    assert accused([9000] * 9) == {} and accused([1500]) == {}
