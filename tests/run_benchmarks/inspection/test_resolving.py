"""Hosts that resolve names otherwise than most are named, and those that are right are not."""

import pytest

from run_benchmarks.inspection.resolving import odd_answers


def found(**answers: dict[str, str]) -> dict[tuple[str, str], tuple[str, str]]:
    """By host and what was found the severity and what was expected; answers: by host and name, addresses by blanks."""
    given = {host: {name: frozenset(told.split()) for name, told in own.items()} for host, own in answers.items()}
    return {(host, was): (severity, expected) for host, (_, was, expected, _, severity) in odd_answers(given)}


def test_hosts_that_agree_have_no_finding_also_where_a_name_has_several_addresses_and_its_host_knows_it_otherwise() -> (
    None
):
    assert found(a={"c": "10.0.0.3 fe80::3"}, b={"c": "10.0.0.3"}, c={"c": "127.0.1.1", "a": "10.0.0.1"}) == {}
    assert found(a={"b": ""}, b={"a": ""}) == {}, "names that only the head node knows"
    assert found(a={"x": ""}, b={"x": ""}, c={"x": "10.0.0.9"}) == {}, "or that one of many knows"
    assert found(a={"x": "fe80::9%eth0 10.0.0.9"}, b={"x": "fe80::9%ib0 10.0.0.9"}) == {}
    assert found(a={"x": "fe80::9%eth0"}, b={"x": "fe80::9%ib0"}) == {}


def test_the_host_with_another_answer_is_named() -> None:
    right = {"x": "10.0.0.9"}
    assert found(a=right, b=right, c={"x": "10.9.9.9"}) == {
        ("c", "x resolves to 10.9.9.9"): ("warning", "10.0.0.9, as 2 of 3 hosts")
    }


def test_two_hosts_that_differ_are_not_called_most_and_another() -> None:
    assert found(a={"x": "10.0.0.9 fe80::1"}, b={"x": "10.9.9.9 fe80::1"}, y={"x": "127.0.0.1"}) == {
        ("b", "x resolves to 10.9.9.9"): ("warning", "the same everywhere: 1 of 3 have 10.0.0.9"),
        ("y", "x resolves to 127.0.0.1, this host itself"): (
            "failure", "the same everywhere: 1 of 3 have 10.0.0.9"
        ),
    }  # fmt: skip


@pytest.mark.parametrize("own", ["127.0.0.1", "127.0.1.1 ::1", "::1"])
def test_a_host_that_takes_itself_for_another_is_a_failure(own: str) -> None:
    ((where, told),) = found(a={"x": "10.0.0.9"}, b={"x": own}).items()
    assert where[0] == "b" and where[1].endswith(", this host itself")
    assert told == ("failure", "10.0.0.9, as 1 of 2 hosts")


def test_names_that_only_this_host_does_not_resolve_are_one_finding() -> None:
    names = [f"x{n}" for n in range(6)]
    right = dict.fromkeys(names, "10.0.0.9")
    assert found(a=right, b=right, c=dict.fromkeys(names, "")) == {
        ("c", "x0, x1, x2, x3 and 2 more do not resolve"): ("warning", "they resolve on other hosts")
    }


def test_a_host_may_send_anything() -> None:
    assert found(a={"x": "fe80::1%eth0 nonsense"}, b={"x": "nonsense"}, c={}) == {}
