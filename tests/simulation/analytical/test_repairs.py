"""The default dialect: without repairs it is the original; each repair does what docs/reference/simulation.md says."""

import re
from pathlib import Path

import pytest

from simulation.analytical.algorithms import algorithms
from simulation.analytical.machine import Cluster
from simulation.analytical.nccl_tuning import tuned
from simulation.analytical.placement import GroupPlacement
from simulation.analytical.repairs import ALL_SWITCHABLE, REPAIRS, SWITCHABLE
from tests.docs.pages import ROOT, text_of
from tests.simulation.analytical import recorded
from tests.simulation.analytical.asking import CLUSTER, ask, row, times, write
from tests.simulation.analytical.recorded import RecordedRun
from workloads.formats.simai_text import ALLREDUCE

PAGE = text_of(ROOT / "docs" / "reference" / "simulation.md")
# What the default dialect refuses, or what the original's wrapped integers decide.
REFUSED = {"ex_dpo2_outofrange", "ex_g1024_notmult", "ex_no_nps", "ex_no_nv_nic", "ex_nps1_neg", "ex_nps2", "ex_nps4"}
MEANINGLESS = {"ex_gpu_B200_unknown", "ex_nic_unknown"}
COMPARED = [
    run
    for run in recorded.runs()
    if run.name not in REFUSED | MEANINGLESS and "tp1_ep" not in run.name and run.csv is not None
]


def without(names: frozenset[str]) -> list[str]:
    return [word for name in sorted(names) for word in ("--without", name)]


pytestmark = pytest.mark.usefixtures("in_an_empty_folder")


@pytest.mark.parametrize("run", COMPARED[::4], ids=lambda run: run.name)
def test_without_its_repairs_it_is_the_original(run: RecordedRun, tmp_path: Path) -> None:
    """All but the rounding: 32-bit floats, within 3e-6, and up to 2 ns a row, which the original cuts off."""
    path = recorded.workload(run.workload, tmp_path)
    assert ask("-w", str(path), *run.options, *without(ALL_SWITCHABLE)).code == 0
    lines = [line for line in Path(run.file).read_text().splitlines() if not line.startswith("#")]
    rows = len(lines) - 3
    for ours, theirs in zip(lines[1].split(", ")[1:], run.summary[1:], strict=True):
        value, wanted = (float(cell.split()[0]) for cell in (ours, theirs))
        assert value == pytest.approx(wanted, rel=3e-6, abs=1 + rows / 500)


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_cannot_mean_anything_is_refused(name: str, tmp_path: Path) -> None:
    run = next(run for run in recorded.runs() if run.name == name)
    path = recorded.workload(run.workload, tmp_path)
    if name in ("ex_nps1_neg", "ex_nps2", "ex_nps4"):  # fewer NICs than GPUs: shared, once the placement is repaired
        assert ask("-w", str(path), *run.options).code == 0
        assert ask("-w", str(path), *run.options, "--without", "placement").code == 2
    else:
        assert ask("-w", str(path), *run.options).code == 2


def test_the_page_tells_every_repair_with_its_effect_on_the_seeds_example(tmp_path: Path) -> None:
    path = recorded.workload(recorded.SEED, tmp_path)

    def total(names: frozenset[str]) -> float:
        return ask("-w", str(path), *recorded.SEED_OPTIONS, "-r", "x-", "--json", *without(names)).total

    told = {match[1]: match[2] for match in re.finditer(r"^\| `([\w-]+)` \|.*\| ([^|]+) \|$", PAGE, re.MULTILINE)}
    assert {repair.name for repair in REPAIRS} <= told.keys()
    original, ours = total(ALL_SWITCHABLE), total(frozenset())
    for repair in SWITCHABLE:
        alone = total(ALL_SWITCHABLE - {repair.name}) - original
        assert told[repair.name] == (f"{alone:+,.0f} us" if round(alone) else "none"), repair.name
    assert f"{ours:,.0f} us" in PAGE and f"{ours - original:+,.0f} us" in PAGE


def phase(path: Path, *options: str, name: str = "forward") -> dict[str, object]:
    return dict(times(path, *options)[name])


def test_pipeline_time_is_bytes_over_bandwidth(tmp_path: Path) -> None:
    path = write(tmp_path / "w", [row()], tp=8, pp=2, vpp=3, ga=4, pp_comm=48_500_000)
    options = ["-w", str(path), "-g", "16", *CLUSTER, "--json"]
    assert ask(*options).summary["pipeline_us"] == pytest.approx(2 * 3 * 4 * 1000)
    assert ask(*options, "-pp_o", "0.25").summary["pipeline_us"] == pytest.approx(2 * 3 * 4 * 750)
    assert ask(*options, "--without", "pipeline").summary["pipeline_us"] == 0


def test_dp_inside_one_server_uses_nvlink(tmp_path: Path) -> None:
    path = write(tmp_path / "w", [row(weight="ALLREDUCE 1073741824")], tp=2)
    repaired = phase(path, "-g", "8", *CLUSTER, name="weight gradient")
    assert (repaired["servers"], repaired["per_server"]) == (1, 4)
    original = phase(path, "-g", "8", *CLUSTER, *without(ALL_SWITCHABLE), name="weight gradient")
    assert original["servers"] == 4, "the original takes ranks for servers"
    assert repaired["considered"][0]["limited_by"] == "NVLink" != original["considered"][0]["limited_by"]  # type: ignore[index]


@pytest.mark.parametrize("ranks", [3, 5, 6, 7, 24, 48, 96, 192, 1536])
def test_no_group_size_is_free(ranks: int, tmp_path: Path) -> None:
    path = write(tmp_path / "w", [row("ALLREDUCE 4096")], tp=ranks)
    assert float(str(phase(path, "-g", str(ranks), *CLUSTER)["communication_us"])) >= 10
    options = (*CLUSTER, "--without", "group-size", "--without", "small-messages")
    assert phase(path, "-g", str(ranks), *options)["communication_us"] == 0, "the original's silent zero"


def test_messages_above_16_gib_have_a_time(tmp_path: Path) -> None:
    path = write(tmp_path / "w", [row("ALLGATHER 20000000000")], tp=8)
    assert phase(path, "-g", "8", *CLUSTER)["communication_us"] == pytest.approx(20e9 / 360e9 * 1e6 * 7 / 8)
    refused = ask("-w", str(path), "-g", "8", *CLUSTER, "--dialect", "simai")
    assert refused.code == 2 and "17179869184" in refused.err and not list(tmp_path.glob("*.csv"))


def test_small_messages_have_no_jump(tmp_path: Path) -> None:
    def time(size: int, *options: str) -> float:
        path = write(tmp_path / "w", [row(f"ALLREDUCE {size}")], tp=8)
        return float(str(phase(path, "-g", "8", *CLUSTER, *options)["communication_us"]))

    assert time(1) == pytest.approx(15, rel=1e-3)
    for size in (1 << 20, 16 << 20):
        assert time(size) == pytest.approx(time(size - 1), rel=1e-6)
    assert time((1 << 20) - 1, "--without", "small-messages") == 15
    assert time(1 << 20, "--without", "small-messages") < 10, "the original's jump downwards at 1 MiB"


def test_nvls_and_tree_are_taken_where_they_are_faster(tmp_path: Path) -> None:
    def chosen(tp: int, size: int, *options: str) -> object:
        path = write(tmp_path / "w", [row(f"ALLREDUCE {size}")], tp=tp)
        return phase(path, "-g", str(tp), "-g_p_s", "8", "-n_p_s", "8", "-nic_t", "cx7", *options)["algorithm"]

    assert chosen(8, 1 << 30, "-g_type", "H100") == "NVLS"
    assert chosen(8, 1 << 30, "-g_type", "A100") == "ring"
    assert chosen(2, 1 << 30, "-g_type", "H100") == "ring", "among two GPUs the switch saves nothing"
    assert chosen(1024, 65536, "-g_type", "H100") == "tree"
    assert chosen(1024, 1 << 32, "-g_type", "H100") == "NVLS, tree"
    assert chosen(1024, 1 << 36, "-g_type", "A100") == "ring"
    assert chosen(8, 1 << 30, "-g_type", "H100", "--without", "algorithm") == "ring"


@pytest.mark.parametrize(("ranks", "servers"), [(16, 2), (1024, 128)])
def test_a_tree_has_the_bandwidth_that_nccl_reckons_with(ranks: int, servers: int) -> None:
    """ncclTopoTuneModel of NCCL 2.27: 0.92 of the ring's bus bandwidth, of which a tree's algorithm has a half."""
    cluster = Cluster(ranks, 8, 8, 450.0, 50.0, None, "H100", "cx7")
    placed = GroupPlacement(ranks, 1, servers, 8, 8.0)
    _, tree = algorithms(cluster, placed, ALLREDUCE)
    assert tree.algorithm == "tree"
    assert tuned("tree", cluster, placed, 1 << 30).bandwidth_us == pytest.approx(2 * (1 << 30) / (0.92 * 400e3))


@pytest.mark.parametrize(
    ("ranks", "servers", "size", "latency_us"),
    [
        (16, 2, 64 << 10, 6.8 + 2 * (7 * 0.6 + 1 * 5.0)),
        (16, 2, 8 << 20, 14.0 + 2 * (7 * 1.25 + 1 * 8.5)),
        (16, 2, 1 << 30, 8.4 + 2 * (7 * 4.0 + 1 * 14.0)),
        (1024, 128, 64 << 10, 6.8 + 2 * (7 * 0.6 + 7 * 5.0)),
    ],
)
def test_a_tree_has_the_latency_that_nccl_reckons_with(ranks: int, servers: int, size: int, latency_us: float) -> None:
    """NCCL 2.28, graph/tuning.cc: the base, and twice the hops inside a server and those of the tree across servers."""
    cluster = Cluster(ranks, 8, 8, 450.0, 50.0, None, "H100", "cx7")
    placed = GroupPlacement(ranks, 1, servers, 8, 8.0)
    assert tuned("tree", cluster, placed, size).latency_us == pytest.approx(latency_us)


def test_nvls_has_its_own_bandwidth(tmp_path: Path) -> None:
    path = write(tmp_path / "w", [row("ALLREDUCE 17179869184")], tp=8)
    found = phase(path, "-g", "8", "-g_p_s", "8", "-n_p_s", "8", "-g_type", "H100", "-nic_t", "cx7")
    by_name = {one["algorithm"]: one["bus_bandwidth_GBps"] for one in found["considered"]}  # type: ignore[attr-defined]
    assert by_name == {"ring": pytest.approx(370.8), "NVLS": pytest.approx(475)}


def test_a_gigabyte_is_1e9_bytes(tmp_path: Path) -> None:
    path = write(tmp_path / "w", [row("ALLTOALL 17179869184")], tp=2)
    assert phase(path, "-g", "2", *CLUSTER)["communication_us"] == pytest.approx((16 << 30) / 360e3 / 2)
    assert phase(path, "-g", "2", *CLUSTER, "--without", "gigabyte")["communication_us"] == pytest.approx(
        16e6 / 360 / 2
    )


def test_broadcast_costs_time(tmp_path: Path) -> None:
    path = write(tmp_path / "w", [row("BROADCAST 17179869184")], tp=4)
    assert phase(path, "-g", "4", *CLUSTER)["communication_us"] == pytest.approx((16 << 30) / 360e3)
    assert phase(path, "-g", "4", *CLUSTER, "--without", "broadcast")["communication_us"] == 0


def test_each_phase_counts_with_its_own_group(tmp_path: Path) -> None:
    path = write(tmp_path / "w", [row("ALLREDUCE 1073741824", "ALLTOALL_EP 1073741824")], tp=2, ep=2)
    options = ["-w", str(path), "-g", "8", *CLUSTER, "--json"]
    ours, theirs = ask(*options).summary["exposed_us"], ask(*options, "--without", "own-group").summary["exposed_us"]
    assert ours["EP"] > 0 and theirs["EP"] == 0
    assert ours["TP"] + ours["EP"] == pytest.approx(theirs["TP"])
    hidden = ask(*options, "-ep_o", "1").summary["exposed_us"]
    assert hidden["EP"] == 0 and hidden["TP"] == ours["TP"]


def test_measured_efficiencies_hold_for_all_reduce_and_dp(tmp_path: Path) -> None:
    path = write(tmp_path / "w", [row("ALLREDUCE 16777216", weight="ALLGATHER 16777216")], tp=8)
    found = times(path, "-g", "1024", *CLUSTER)
    assert found["forward"]["considered"][0]["efficiency"] == pytest.approx(0.45 / 0.81, abs=1e-6)
    assert found["weight gradient"]["considered"][0]["efficiency"] < 0.9
    bare = times(path, "-g", "1024", *CLUSTER, "--without", "efficiency")
    assert {bare[name]["considered"][0]["efficiency"] for name in ("forward", "weight gradient")} == {1.0}


def test_hidden_communication_does_not_lengthen_the_bubble(tmp_path: Path) -> None:
    path = write(tmp_path / "w", [row("ALLREDUCE 1073741824", ns=1000)], tp=2, pp=4, ga=8)
    options = ["-w", str(path), "-g", "8", *CLUSTER, "-tp_o", "1", "--json"]
    assert ask(*options).summary["bubble_us"] == pytest.approx(3 * 3 / 8)
    assert ask(*options, "--without", "bubble").summary["bubble_us"] > 100


@pytest.mark.parametrize(
    ("part", "nvlink", "nvls"),
    [("H200", 370.8, 475.0), ("B200", 721.8, 804.977), ("GB200", 721.8, 804.977), ("h100", 370.8, 475.0)],
)
def test_newer_parts_are_known(part: str, nvlink: float, nvls: float, tmp_path: Path) -> None:
    path = write(tmp_path / "w", [row("ALLREDUCE 17179869184")], tp=8)
    found = phase(path, "-g", "8", "-g_p_s", "8", "-n_p_s", "8", "-g_type", part, "-nic_t", "cx8")
    by_name = {one["algorithm"]: one["bus_bandwidth_GBps"] for one in found["considered"]}  # type: ignore[attr-defined]
    assert by_name["ring"] == pytest.approx(nvlink) and by_name["NVLS"] == pytest.approx(nvls, abs=0.01)
    across = phase(
        write(tmp_path / "w", [row("ALLREDUCE 17179869184")], tp=16),
        "-g", "16", "-g_p_s", "8", "-n_p_s", "8", "-g_type", part, "-nic_t", "cx8",
    )  # fmt: skip
    assert across["considered"][0]["bus_bandwidth_GBps"] == pytest.approx(min(8 * 97.0, nvlink * 8 / 7))  # type: ignore[index]
