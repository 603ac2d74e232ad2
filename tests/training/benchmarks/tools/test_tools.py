"""The tools run on every rank's host: what they say is judged, and what was not run passes nothing."""

import os
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from pydantic import ValidationError

from protocol.finding import PartFinding
from protocol.outcome import MeasuredCase, MeasuredRound
from protocol.perflog import Event, check_sequence, parse_line
from run_benchmarks.acceptance.tools import MOST_MEETINGS
from tests.training.benchmarks.driver.launch.launching import plain_processes, run
from training.benchmarks.tools.calls import MAX_BYTES, Call, awaited_server, located
from training.benchmarks.tools.pytorch import host as host_module
from training.benchmarks.tools.pytorch.config import Config
from training.benchmarks.tools.pytorch.host import alone, devices_of, told
from training.benchmarks.tools.pytorch.meetings import ring, with_neighbours
from training.benchmarks.tools.pytorch.outcome import OUTCOME
from training.benchmarks.tools.table import TOOLS
from vendors.gaudi.programs import model_of_host
from vendors.programs import NotRunError

DATA = Path(__file__).parents[3] / "data" / "tools"
HOSTS = 6


def program(folder: Path, name: str, script: str) -> None:
    """An executable of that name: a shell script."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def values_of(log: Path, event: Event) -> list[Any]:
    records = [record for record in map(parse_line, log.read_text(encoding="utf-8").splitlines()) if record]
    assert check_sequence(records) == []
    return [record.value for record in records if record.event is event]


@pytest.mark.torch
def test_tools_run_on_every_host_and_between_them_and_those_that_are_missing_are_said(tmp_path: Path) -> None:
    bin_folder, stand_in = tmp_path / "bin", Path(__file__).with_name("stand_in_perftest.py")
    program(bin_folder, "nvbandwidth", f"cat {DATA}/nvbandwidth.txt; echo $* >> {tmp_path}/called")
    program(bin_folder, "ib_write_bw", f"exec {sys.executable} {stand_in} $*")
    program(bin_folder, "rvs", f"cat {DATA}/rvs.txt; exit 1")
    program(bin_folder, "dcgmi", f"cat {DATA}/dcgmi3.json")
    tools = ["nvbandwidth", "ib_write_bw", "rvs", "dcgmi", "ib_write_lat"]
    settings = [f"tools={tools}", 'devices=["mlx5_0"]', 'arguments={"nvbandwidth": "-t \'a b\'"}']
    words = [part for setting in settings for part in ("--set", setting)]
    module = ["training.benchmarks.tools", "--vendor", "cpu", *words]
    code, output = run(tmp_path, plain_processes(2), module, PATH=f"{bin_folder}:/usr/bin:/bin")
    assert code == 0, output
    steps = {step["tool"]: step for step in values_of(tmp_path / "rank0.out.log", Event.STEP_END)}
    assert [*steps] == tools
    assert (tmp_path / "called").read_text() == "-t a b\n" * 2
    assert steps["nvbandwidth"]["figures"][6]["values_of_ranks"] == [31.07, 31.07]
    (figure,) = steps["ib_write_bw"]["figures"]
    assert (figure["test"], figure["unit"], figure["better"]) == ("ib_write_bw mlx5_0", "GB/s", "higher")
    one, two = figure["values_of_ranks"]
    assert one == two > 0, "both ends of the only pair have its figure"
    assert steps["rvs"]["failed"].keys() == {"0", "1"}
    assert steps["dcgmi"]["told"] == {rank: {"Targeted Stress: skipped": "GPU 3"} for rank in "01"}
    assert steps["ib_write_lat"]["not_run"]["1"]["why"] == "ib_write_lat is not installed"
    (finished,) = values_of(tmp_path / "rank0.out.log", Event.FINISHED)
    assert (finished["figures"], finished["failed"], finished["not_run"]) == (19, 4, 2)


@pytest.mark.nightly
@pytest.mark.torch
def test_all_devices_of_all_hosts_send_at_once_and_one_that_fails_with_both_neighbours_is_said(tmp_path: Path) -> None:
    """Each client waits until all run. The second device of rank 1 is broken: nobody can send to its server."""
    stand_in = Path(__file__).with_name("stand_in_perftest.py")
    last = 'for last; do :; done; case "$*" in *mlx5_1*) [ "$RANK" = 1 ] && set -- "$@" -d broken ;; esac'
    begun = tmp_path / "begun"
    wait = f"case $last in *.*) echo x >>{begun}; while [ $(wc -l <{begun}) -lt 5 ]; do sleep 0.05; done ;; esac"
    program(tmp_path / "bin", "ib_write_bw", f'{last}\n{wait}\nexec {sys.executable} {stand_in} "$@"')
    words = ["--set", 'tools=["ib_write_bw_ring"]', "--set", 'devices=["mlx5_0", "mlx5_1"]']
    module = ["training.benchmarks.tools", "--vendor", "cpu", *words]
    code, output = run(tmp_path, plain_processes(3), module, PATH=f"{tmp_path / 'bin'}:/usr/bin:/bin")
    assert code == 0, output
    (step,) = values_of(tmp_path / "rank0.out.log", Event.STEP_END)
    first, second = step["figures"]
    assert (first["test"], first["better"]) == ("ib_write_bw_ring mlx5_0", "higher")
    assert all(value > 0 for value in first["values_of_ranks"])
    assert second["test"] == "ib_write_bw_ring mlx5_1" and second["values_of_ranks"][1] is None
    assert [value is None for value in second["values_of_ranks"]] == [False, True, False]
    assert step["silent"].keys() == {"1"} and step["not_run"] == {}
    slow = found(step | {"silent": {"1": step["silent"]["1"]}}, max_percent_behind=99.0)
    assert [(each.hosts, each.kind) for each in slow] == [(("node1",), "failed_test")]


def test_a_part_without_a_figure_is_a_fault_of_its_host_alone_where_most_others_have_one() -> None:
    values: list[Any] = [11.5, 11.6, None, 11.5, 11.6, 11.5]
    one = {"tool": "t", "figures": [figure(values)], "silent": {"2": {"mlx5_0": "exit code 1"}}}
    (fault,) = found(one)
    assert (fault.hosts, fault.kind, fault.drained_hosts) == (("node2",), "failed_test", ("node2",))
    assert "t mlx5_0 gives a result on 5 other hosts, not here: exit code 1" in fault.sentence
    everywhere = {str(rank): {"mlx5_bond_0": "exit code 1"} for rank in range(HOSTS)}
    (nobody,) = found({"tool": "t", "figures": [], "silent": everywhere})
    assert (nobody.kind, nobody.drained_hosts) == ("not_run", ())
    assert nobody.evidence == "not run: t mlx5_bond_0: exit code 1 on node0, node1, node2, node3 and 2 more"


@pytest.mark.parametrize("key", ["silent", "not_run"])
def test_a_host_that_met_none_but_broken_hosts_is_not_accused(key: str) -> None:
    """Hosts 1 and 3 of a ring of 7 are broken: host 2 meets nobody else."""
    values: list[Any] = [11.5, None, None, None, 11.6, 11.5, 11.5]
    why: dict[str, Any] = {"mlx5_0": "exit code 1"} if key == "silent" else {"why": "exit code 1"}
    said = {str(rank): why for rank in (1, 2, 3)}
    for tool in ("ib_write_bw", "ib_write_bw_ring"):
        step = {"tool": tool, "figures": [figure(values, test=f"{tool} mlx5_0")], key: said}
        told = {each.hosts: (each.kind, each.severity, each.drained_hosts) for each in found(step, hosts=7)}
        broken = {(name,): ("failed_test", "fault", (name,)) for name in ("node1", "node3")}
        assert told == broken | {("node2",): ("failed_test", "fault", ())}, "another occasion tells of it"
    alone = step | {"tool": "ib_write_bw_loopback", "figures": [figure(values, test="ib_write_bw_loopback mlx5_0")]}
    assert {each.kind for each in found(alone, hosts=7)} == {"failed_test"}, "there each host met nobody"


def test_hosts_without_the_tool_are_no_neighbours_in_the_ring() -> None:
    """Hosts 0 and 2 of 7 lack it: host 1, the broken one, met hosts 6 and 3."""
    said = {str(rank): {"why": "exit code 1", "is_missing": rank != 1} for rank in (0, 1, 2)}
    told = found({"tool": "ib_write_bw", "figures": [], "not_run": said}, hosts=7)
    assert {each.hosts: each.drained_hosts for each in told if each.kind == "failed_test"} == {("node1",): ("node1",)}


def test_a_program_that_cannot_be_started_here_is_no_server_that_does_not_listen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ib_write_bw").write_text("#!/no/such/interpreter\n")
    (tmp_path / "ib_write_bw").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    config = Config.model_validate({"tools": ["ib_write_bw"], "devices": ["mlx5_0"]})
    group: Any = SimpleNamespace(
        placement=SimpleNamespace(rank=1),
        gathered=lambda value: [True, True] if isinstance(value, bool) else [value, value],
    )
    with pytest.raises(NotRunError, match="No such file"):
        with_neighbours("ib_write_bw", config, group)


def test_each_device_of_a_host_is_measured_against_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, "ib_write_bw", f"exec {sys.executable} {Path(__file__).with_name('stand_in_perftest.py')} $*")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    config = Config.model_validate({"tools": ["ib_write_bw_loopback"], "devices": ["mlx5_0", "mlx5_1"]})
    answer = told(lambda: alone("ib_write_bw_loopback", config))
    assert answer["figures"].keys() == {"mlx5_0", "mlx5_1"} and min(answer["figures"].values()) > 0
    other = config.model_copy(update={"devices": ["mlx5_0", "broken"]})
    broken = told(lambda: alone("ib_write_bw_loopback", other))
    assert "exit code 1" in broken["not_run"] and "Unable to find the Infiniband/RoCE device" in broken["not_run"]


def found(step: dict[str, Any], hosts: int = HOSTS, **config: Any) -> list[PartFinding]:
    """The findings of a step of some hosts."""
    case = MeasuredCase(name="TOOLS", config={"max_percent_behind": 7.0} | config, nnodes=hosts, nproc=1)
    names = {rank: f"node{rank}" for rank in range(hosts)}
    measured = MeasuredRound(number=1, metrics={}, steps=[step], hosts=names)
    OUTCOME.console(case, measured)
    return [*OUTCOME.findings(case, measured)]


def figure(values: list[Any], better: str = "higher", **more: Any) -> dict[str, Any]:
    return {"test": "t mlx5_0", "unit": "GB/s", "better": better, "values_of_ranks": values} | more


def test_a_host_behind_the_others_is_named_whichever_way_is_better() -> None:
    (slow,) = found({"tool": "ib_write_bw", "figures": [figure([11.5, 11.6, 11.4, 7.0, 11.5, None])]})
    assert (slow.hosts, slow.kind, slow.drained_hosts) == (("node3",), "constant", ("node3",))
    assert "t mlx5_0 7 GB/s, 39 % below its peers' median" in slow.sentence
    (late,) = found({"tool": "ib_write_lat", "figures": [figure([1.4, 1.41, 2.9, 1.4, 1.39, 1.4], "lower")]})
    assert late.hosts == ("node2",) and "107 % above" in late.sentence
    assert found({"tool": "ib_write_lat", "figures": [figure([1.4, 1.41, 0.9, 1.4, 1.39, 1.4], "lower")]}) == []
    assert found({"tool": "ib_write_bw", "figures": [figure([11.5, 11.6, 7.0])]}) == [], "three are too few to agree"


def test_the_rank_with_short_collectives_is_called_late() -> None:
    (late,) = found({"tool": "inspector", "figures": [figure([900, 905, 910, 300, 902, 899])]})
    assert late.hosts == ("node3",) and "the others wait for it" in late.sentence


def test_what_a_tool_calls_broken_drains_its_host() -> None:
    (broken,) = found({"tool": "dcgmi", "figures": [], "failed": {"4": {"GPU 3: Memory": "ECC DBE"}}})
    assert (broken.hosts, broken.kind, broken.severity) == (("node4",), "failed_test", "fault")
    assert broken.drained_hosts == ("node4",) and "dcgmi: GPU 3: Memory: ECC DBE" in broken.sentence


def not_run(ranks: range, why: str, *, is_missing: bool) -> dict[str, Any]:
    said = {str(rank): {"why": why, "is_missing": is_missing} for rank in ranks}
    return {"tool": "ib_write_bw", "figures": [], "not_run": said}


def test_a_tool_that_is_not_installed_on_a_host_accuses_nobody_and_passes_nothing() -> None:
    (one,) = found(not_run(range(3, 4), "ib_write_bw is not installed", is_missing=True))
    assert one.evidence == "not run: ib_write_bw is not installed on node3"
    assert (one.kind, one.severity, one.drained_hosts) == ("not_run", "warning", ())
    everywhere = found(not_run(range(HOSTS), "ib_write_bw is not installed", is_missing=True))
    (nobody,) = everywhere
    assert (nobody.part, nobody.severity) == ("group", "fault"), "nothing was tested: the exit code is 1"
    assert nobody.drained_hosts == () and nobody.sentence.endswith("on node0, node1, node2, node3 and 2 more")


def test_a_tool_that_fails_on_one_host_alone_accuses_it_and_on_most_nobody() -> None:
    (one,) = found(not_run(range(2, 3), "exit code 1", is_missing=False))
    assert (one.hosts, one.kind, one.drained_hosts) == (("node2",), "failed_test", ("node2",))
    assert {each.kind for each in found(not_run(range(1, HOSTS), "exit code 1", is_missing=False))} == {"not_run"}


@pytest.mark.parametrize("junk", [None, 3, "x", [1], {"0": 1}, {"9": {"a": 1}}, {"x": {}}, [{"values_of_ranks": "x"}]])
def test_what_a_host_made_up_is_passed_over(junk: Any) -> None:
    assert (
        found({"tool": junk, "figures": junk, "failed": junk, "not_run": junk, "silent": {"x": junk, "9": junk}}) == []
    )
    assert found({"tool": "rvs", "figures": [figure([True, "9", -1, None, float("nan"), 4, 5])]}) == []


@pytest.mark.parametrize("count", range(2, 10))
def test_in_a_ring_each_host_meets_both_neighbours_and_nobody_twice_at_once(count: int) -> None:
    rounds = ring(range(count))
    assert len(rounds) == (1 if count == 2 else 2 + count % 2) <= MOST_MEETINGS
    for pairs in rounds:
        ranks = [rank for pair in pairs for rank in pair]
        assert len(set(ranks)) == len(ranks)
    partners = [frozenset(pair) for pairs in rounds for pair in pairs]
    assert sorted(map(sorted, partners)) == sorted(
        sorted({rank, (rank + 1) % count}) for rank in range(count if count > 2 else 1)
    )


def test_an_endless_output_is_cut_and_the_tool_can_end() -> None:
    with Call(["sh", "-c", "yes | head -c 9000000; echo last"], 60) as call:
        ended = call.wait()
    assert (len(ended.text), ended.exit_code, ended.is_late) == (MAX_BYTES, 0, False)


def test_a_tool_that_hangs_is_ended_with_all_that_it_started() -> None:
    begin, nap = time.monotonic(), str(40_000_000 + os.getpid())
    with Call(["sh", "-c", f"echo begun; sleep {nap} & sleep {nap}"], 1) as call:
        ended = call.wait()
    assert (ended.text, ended.is_late) == ("begun\n", True) and time.monotonic() - begin < 60
    left = [each for each in psutil.process_iter(["cmdline"]) if each.info["cmdline"] == ["sleep", nap]]
    for each in left:
        each.kill()
    assert not left


def test_a_server_that_ends_is_not_waited_for(tmp_path: Path) -> None:
    with Call(["false"], 60) as call:
        assert not awaited_server(call, 1, seconds=60)
    listing = "  sl  local_address rem_address   st\n   0: 00000000:48B2 00000000:0000 0A 0\n"
    (tmp_path / "tcp").write_text(listing)
    with Call(["sleep", "60"], 60) as call:
        assert awaited_server(call, 0x48B2, seconds=1, proc=tmp_path)
        assert not awaited_server(call, 0x48B3, seconds=0.2, proc=tmp_path)


def test_a_tool_beside_path_is_found_and_devices_are_those_with_an_active_port(tmp_path: Path) -> None:
    program(tmp_path, "rvs", "true")
    assert located("rvs", [str(tmp_path)]) == str(tmp_path / "rvs") and located("rvs") is None
    for name, state in (("mlx5_10", "4: ACTIVE"), ("mlx5_2", "4: ACTIVE"), ("mlx5_0", "1: DOWN")):
        (tmp_path / "ib" / name / "ports" / "1").mkdir(parents=True)
        (tmp_path / "ib" / name / "ports" / "1" / "state").write_text(f"{state}\n")
    config = Config.model_validate({"tools": ["ib_write_bw"]})
    assert devices_of(config, tmp_path / "ib") == ["mlx5_2", "mlx5_10"]
    with pytest.raises(NotRunError, match="no InfiniBand or RoCE port is active"):
        devices_of(config, tmp_path / "none")


def with_pci(root: Path, *kinds: str) -> Path:
    """PCI devices of Habana, with the numbers of their kinds, beside one of another vendor."""
    for place, (vendor, kind) in enumerate([("0x8086", "0x1020"), *(("0x1da3", kind) for kind in kinds)]):
        (root / f"0000:0{place}:00.0").mkdir(parents=True)
        (root / f"0000:0{place}:00.0" / "vendor").write_text(f"{vendor}\n")
        (root / f"0000:0{place}:00.0" / "device").write_text(f"{kind}\n")
    return root


@pytest.mark.parametrize(
    ("kinds", "name"), [(["0x1020"] * 8, "gaudi2"), (["0x1060"] * 8, "gaudi3"), (["0x1063"], "gaudi3")]
)
def test_hl_qual_is_told_the_devices_that_the_host_has_and_is_taken_from_their_folder(
    kinds: list[str], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = partial(model_of_host, with_pci(tmp_path / "pci", *kinds))
    folders = tuple(str(tmp_path / each / "bin") for each in ("gaudi2", "gaudi3"))
    monkeypatch.setattr(host_module, "TOOLS", {"hl_qual": replace(TOOLS["hl_qual"], folders=folders, model=model)})
    for folder in folders:
        Path(folder).mkdir(parents=True)
        program(Path(folder), "hl_qual", 'echo "$0 $1 PASSED"')
    bench = host_module.bench_of("hl_qual", Config(tools=["hl_qual"]))
    assert bench.argv[:2] == (f"{tmp_path}/{name}/bin/hl_qual", f"-{name}")
    chosen = Config(tools=["hl_qual"], arguments={"hl_qual": "-gaudi -x"})
    assert host_module.bench_of("hl_qual", chosen).argv[1:] == ("-gaudi", "-x"), "a user's own word stays"
    assert alone("hl_qual", Config(tools=["hl_qual"])).passed == 1
    (tmp_path / name / "bin" / "hl_qual").unlink()
    with pytest.raises(NotRunError, match=f"^hl_qual for {name} is not installed$") as error:
        host_module.bench_of("hl_qual", Config(tools=["hl_qual"]))
    assert error.value.is_missing, "the other kind's tests are no good here"


@pytest.mark.parametrize(
    ("kinds", "found"),
    [([], "none"), (["0x1000"], "0x1000"), (["0x1020", "0x1060"], "0x1020, 0x1060"), (["0x1060", "x"], "0x1060, x")],
)
def test_hl_qual_says_that_it_cannot_run_beside_other_devices_and_excuses_no_host_that_lost_its_own(
    kinds: list[str], found: str, tmp_path: Path
) -> None:
    with pytest.raises(NotRunError, match=f"hl_qual cannot run: it tests Gaudi 2 or Gaudi 3, .*: {found}$") as error:
        model_of_host(with_pci(tmp_path, *kinds))
    assert error.value.is_missing is (found != "none")


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"tools": ["nvbandwith"]}, "nvbandwith: allowed are ib_write_bw_loopback"),
        ({"tools": ["rvs", "rvs"]}, "twice"),
        ({}, "none is named"),
        ({"tools": ["rvs"], "arguments": {"dcgmi": "-r 3"}}, "dcgmi is not in tools"),
        ({"tools": ["rvs"], "arguments": {"rvs": "'"}}, "No closing quotation"),
        ({"tools": ["rvs"], "devices": ["mlx5_0"]}, "no effect"),
    ],
)
def test_settings_without_effect_are_refused(settings: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        Config.model_validate(settings)


def test_pairs_need_two_hosts_and_every_host_one_process() -> None:
    config = Config.model_validate({"tools": ["ib_write_bw"]})
    assert config.refusal(nnodes=2, nproc=1) is None
    assert "needs two hosts" in str(config.refusal(nnodes=1, nproc=1))
    assert "nproc = 1" in str(config.refusal(nnodes=2, nproc=8))
