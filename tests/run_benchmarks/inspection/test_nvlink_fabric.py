"""The fabric of NVLinks: GPUs that did not join it, hosts in another domain or clique, and who does not tell."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from run_benchmarks.inspection.health import parsed
from tests.run_benchmarks.inspection.made_hosts import host_files, looked, said, tree

NONE = "00000000-0000-0000-0000-000000000000"
GPUS = ("00000009:01:00.0", "00000019:01:00.0")


def lines(*domains: str, state: str = "Completed", status: str = "Success") -> str:
    """What nvidia-smi prints of two GPUs: "CLUSTER CLIQUE" of each, or of both."""
    told = (domains * 2)[:2]
    rows = zip(GPUS, (each.split() for each in told), strict=True)
    return "".join(f"{bus}, {state}, {status}, {clique}, {cluster}\n" for bus, (cluster, clique) in rows)


def found_in(hosts: Mapping[str, str]) -> dict[tuple[str, str, str], str]:
    """The findings of hosts whose nvidia-smi prints so."""
    return said(
        {
            host: parsed("".join(f"nvlink_fabric\t{line}\n" for line in text.splitlines()) + "end\tok\n")
            for host, text in hosts.items()
        }
    )


@pytest.mark.parametrize(
    ("state", "status", "expected"),
    [
        ("Completed", "Success", {}),
        ("In Progress", "[N/A]", {"its registration with the NVLink fabric is: In Progress": "failure"}),
        ("Not Started", "[N/A]", {"its registration with the NVLink fabric is: Not Started": "failure"}),
        (
            "Completed",
            "Insufficient Resources",
            {"its registration with the NVLink fabric failed: Insufficient Resources": "failure"},
        ),
        ("[N/A]", "[N/A]", {"nvidia-smi does not tell: NVLink fabric": "not seen"}),
        ("Not Supported", "Success", {"nvidia-smi does not tell: NVLink fabric": "not seen"}),
        ("Completed", "Not Supported", {"nvidia-smi does not tell: NVLink fabric": "not seen"}),
        ("[Insufficient Permissions]", "[N/A]", {"nvidia-smi does not tell: NVLink fabric": "not seen"}),
        ("Completed", "[Unknown Error]", {"nvidia-smi does not tell: NVLink fabric": "not seen"}),
    ],
)
def test_a_gpu_that_is_not_registered_is_named_and_one_that_does_not_tell_passes_nothing(
    state: str, status: str, expected: dict[str, str]
) -> None:
    found = found_in({"n0": lines(f"{NONE} 0", state=state, status=status)})
    assert {what: severity for (_, _, what), severity in found.items()} == expected
    subjects = {subject for _, subject, _ in found}
    assert subjects == ({f"GPU {bus}" for bus in GPUS} if "failure" in expected.values() else {*subjects})


def test_hosts_of_one_domain_in_two_cliques_are_told_and_racks_of_their_own_are_not() -> None:
    racks = {f"n{n}": lines("dc6e 2" if n < 4 else "9c6f 7") for n in range(8)}
    assert found_in(racks) == {} == found_in({f"n{n}": lines(f"{NONE} 0") for n in range(4)})
    assert found_in(racks | {"n1": lines("dc6e 5")}) == {("n1", "clique of its NVLink domain", "5"): "warning"}
    assert found_in(racks | {"n1": lines("beef 2")}) == {
        ("n1", "NVLink domain", "beef, in which no other host is"): "warning"
    }
    assert found_in(racks | {"n1": lines(f"{NONE} 0")}) == {("n1", "NVLink domain", "none that it tells of"): "warning"}
    two = "its GPUs are in 2 of them: dc6e 2, dc6e 3"
    assert found_in(racks | {"n1": lines("dc6e 2", "dc6e 3")}) == {("n1", "NVLink domain", two): "warning"}
    alone = {f"n{n}": lines(f"rack{n} 1") for n in range(4)}
    assert found_in(alone) == {}, "each its own: nobody is odd"


def test_of_a_domain_in_two_halves_none_is_odd_and_it_is_told() -> None:
    halves = {f"n{n}": lines(f"dc6e {n % 2}") for n in range(4)}
    said = "the 4 hosts of dc6e are in several cliques, of which none has most"
    assert found_in(halves) == {(host, "NVLink domain", said): "warning" for host in halves}


def test_only_a_host_all_of_whose_gpus_joined_is_missed_in_the_others_domain() -> None:
    """One without such GPUs is not; one with a GPU that waits, or that is in two cliques, is told of once."""
    racks = {f"n{n}": lines("dc6e 2") for n in range(8)}
    assert found_in(racks | {"n8": ""}) == {}
    waits = found_in(racks | {"n1": lines(f"{NONE} 0", state="In Progress", status="[N/A]")})
    assert {(host, subject) for host, subject, _ in waits} == {("n1", f"GPU {bus}") for bus in GPUS}
    for first, second in (("dc6e 3", "dc6e 2"), ("beef 1", "beef 2")):
        two = f"its GPUs are in 2 of them: {first}, {second}"
        assert found_in(racks | {"n1": lines(first, second)}) == {("n1", "NVLink domain", two): "warning"}


@pytest.mark.parametrize("text", ["x", ", , , ,", "a, b", 900 * "y,", "0, Completed, Success, , ", "0, 1, 2, 3, 4, 5"])
def test_what_a_host_makes_up_of_its_fabric_accuses_no_other_host(text: str) -> None:
    racks = {f"n{n}": lines("dc6e 2") for n in range(3)}
    assert {host for host, _, _ in found_in(racks | {"n3": text})} <= {"n3"}


def test_the_driver_s_tool_is_asked_and_its_silence_is_told(tmp_path: Path) -> None:
    text = lines(f"{NONE} 0", state="In Progress", status="[N/A]")
    asked = f"case $* in *query-gpu=gpu_bus_id,fabric.state*) cat <<'END'\n{text}END\n;; esac"
    files = tree(tmp_path, host_files())
    found = said({"n0": looked(files, programs={"nvidia-smi": asked})})
    what = "its registration with the NVLink fabric is: In Progress"
    assert [found["n0", f"GPU {bus}", what] for bus in GPUS] == ["failure", "failure"]
    older = said({"n0": looked(files, programs={"nvidia-smi": "case $* in *fabric*) exit 2 ;; esac"})})
    assert older["n0", "NVLink fabric", "nvidia-smi does not tell"] == "not seen"
