"""Silent data corruption: one flipped bit in one product names the host; different kinds are never accused."""

import random
from argparse import Namespace
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import cast

import pytest
import torch

from protocol.outcome import MeasuredCase, MeasuredRound
from protocol.perflog import Event
from tests.tiers import samples
from tests.training.benchmarks.base.flipping import Flip
from tests.training.benchmarks.base.test_base import SMALL, values_of
from tests.training.benchmarks.driver.launch.launching import plain_processes, run
from tests.vendors.test_processor import ARM, KUNPENG, N1
from training.benchmarks.base.pytorch import operations, products
from training.benchmarks.base.pytorch.capacity import Capacity
from training.benchmarks.base.pytorch.config import Config
from training.benchmarks.base.pytorch.disks import Disk
from training.benchmarks.base.pytorch.figures import DeviceFigure, _of_all, device_of
from training.benchmarks.base.pytorch.outcome import OUTCOME
from training.benchmarks.base.pytorch.suite import odd_ones
from training.benchmarks.base.pytorch.twins import LAYERS, Training, bits_of, kind_of
from training.benchmarks.driver.workload import accelerator
from training.benchmarks.driver.workload.process_group import ProcessGroup

CPU = torch.device("cpu")
HOSTS, SIZE, STEPS = 8, 128, 2


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Threads that wait for each other on busy cores take a hundred times as long."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def trained(at: int | None = None, seed: int = 0) -> tuple[dict[str, int], Flip]:
    """The digests of a host, where product number `at` has a flipped bit; and the flip."""
    training = Training(SIZE, CPU, 1)
    with Flip(at, seed) as flip:
        for _ in range(STEPS):
            training.run()
    assert training.is_correct() or at is not None
    return training.digests(), flip


@cache
def healthy() -> tuple[dict[str, int], int]:
    digests, flip = trained()
    return digests, flip.count


def test_the_same_seed_has_the_same_digests_and_another_one_others() -> None:
    assert trained()[0] == healthy()[0]
    other = Training(SIZE, CPU, 2)
    for _ in range(STEPS):
        other.run()
    assert set(other.digests().values()).isdisjoint(healthy()[0].values())
    # Six products forward and two for each of them backward, but one for the tokens that no weight made.
    assert healthy()[1] == STEPS * (LAYERS * 18 - 1)


def test_one_flipped_bit_in_one_product_on_one_of_eight_hosts_is_found_in_every_run() -> None:
    for seed in samples(25, 100):
        draw = random.Random(seed)
        bad, at = draw.randrange(HOSTS), draw.randrange(healthy()[1])
        digests, flip = trained(at, seed)
        assert flip.flipped
        everyone = [list(digests.values()) if host == bad else list(healthy()[0].values()) for host in range(HOSTS)]
        found = odd_ones([1] * HOSTS, everyone, list(digests))
        assert found.odd.keys() == {bad}, f"seed {seed}: {flip.flipped}"
        assert found.odd[bad].startswith("other bits than 7 of 8 of its kind in layer ")
        assert not found.split and not found.alone


def test_the_digest_begins_to_differ_in_the_layer_of_the_flip() -> None:
    """The last product of a step is the first layer's: in the last step nothing follows that could spread it."""
    digests, flip = trained(healthy()[1] - 1, 5)
    assert flip.flipped
    assert [name for name, value in digests.items() if value != healthy()[0][name]] == ["layer 0"]


@pytest.mark.parametrize("test", ["matmul_fp32", "matmul_bf16", "matmul_int8", "matmul_fp64"])
def test_the_digest_of_a_product_reads_every_bit(test: str) -> None:
    product = products.create(test, 64, CPU, 1)
    product.run()
    if not isinstance(product, products.Int8MatMul):
        product.run_checked()
    before = product.digests()
    assert before == product.digests()
    bits = product._product.view(torch.uint8)
    bits[-1, -1] ^= 1  # a row that the check of some rows reads, by less than it allows for in a rounded type
    assert product.digests() != before
    bits[-1, -1] ^= 1
    bits[33, 7] ^= 0x80
    assert product.digests() != before and bits_of(product._product) != before["product"]


@pytest.mark.parametrize("test", ["memory", "host_to_device", "device_to_host", "host_memory"])
def test_a_bit_that_flips_before_it_is_copied_is_seen_beside_the_peers_alone(test: str) -> None:
    made = [operations.create(test, Config(copy_bytes=1 << 16), CPU) for _ in range(2)]
    for copy, flips in zip(made, (0, 1 << 62), strict=True):
        assert isinstance(copy, operations.Copy)
        copy._source[77] ^= flips
        copy.run()
        assert copy.is_correct()
    one, other = (copy.digests() for copy in made)
    assert one == {"copy": sum(range(1 << 13)) + (1 << 13) * Config().seed} != other


def test_memory_of_any_size_has_the_same_digest_until_a_bit_flips() -> None:
    for megabytes in (32, 80):
        capacity = Capacity(CPU, megabytes << 20)
        assert capacity.take() == megabytes << 20
        assert capacity.digests() == {"content": 0}
        capacity._pieces[-1][-1] ^= 1 << 40
        assert abs(capacity.digests()["content"]) == 1 << 40
        capacity.release()


@pytest.mark.parametrize("reads", [True, False])
def test_a_bit_that_flips_before_it_is_written_to_a_disk_is_seen_beside_the_peers_alone(
    tmp_path: Path, reads: bool
) -> None:
    digests = []
    for flips in (0, 0, 1 << 20):
        disk = Disk(tmp_path, 16 << 20, reads=reads)
        for pages in (disk._pages, disk._usual):
            pages[3, 7] ^= flips
        if reads and flips:
            disk._write()
        disk.run()
        assert disk.is_correct()
        digests.append(disk.digests()["file"])
        disk.close()
    assert digests[0] == digests[1] != digests[2]


def test_copies_to_any_number_of_devices_have_one_digest_unless_one_differs() -> None:
    def figures(*digests: int) -> list[DeviceFigure]:
        return [
            DeviceFigure(unit="GB/s", value=1.0, slowest=1.0, is_correct=True, digests={"copy": each})
            for each in digests
        ]

    most = (1 << 63) - 1
    assert _of_all(figures(most)) == _of_all(figures(most, most, most)) == {"copy": most}
    assert _of_all(figures(most, most - 1, most)) not in [{"copy": most}, {"copy": most - 1}]


def test_kinds_are_compared_each_by_itself() -> None:
    kinds = [1, 1, 1, 2, 2, 2, 3, 4, 4]
    digests = [[5, 5], [5, 5], [5, 5], [7, 7], [7, 7], [7, 8], [9, 9], [1, 1], [2, 1]]
    found = odd_ones(kinds, digests, ["a", "b"])
    assert found.odd == {5: "other bits than 2 of 3 of its kind in b"}
    assert found.split == [[7, 8]], "of two that differ nobody knows which one is wrong"
    assert found.alone == 1
    assert odd_ones([1] * 4, [[1], [1], [2], [2]], ["a"]).split == [[0, 1, 2, 3]], "no majority"


def test_processors_of_other_types_are_another_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which a rank reads from /proc/cpuinfo: with the same capability, threads and build of torch."""
    cpuinfo, kinds = tmp_path / "cpuinfo", set()
    monkeypatch.setattr(accelerator, "Path", lambda _: cpuinfo)
    virtual = "vendor_id: {}\ncpu family: 15\nmodel: 6\nmodel name: Common KVM processor\n"
    makers = (virtual.format(maker) for maker in ("GenuineIntel", "AuthenticAMD"))
    for text in (
        *makers,
        "model name: a CPU\n",
        "model name: another CPU\n",
        ARM.format(n=0, **N1),
        ARM.format(n=0, **KUNPENG),
    ):
        cpuinfo.write_text(text)
        kinds.add(kind_of(CPU))
    assert len(kinds) == 6


def test_the_number_of_threads_makes_another_kind() -> None:
    before, threads = kind_of(CPU), torch.get_num_threads()
    assert kind_of(CPU, "2.1") != kind_of(CPU, "2.2") != before
    assert before == kind_of(CPU) and 0 <= before < 1 << 63
    torch.set_num_threads(threads + 1)
    try:
        assert kind_of(CPU) != before
    finally:
        torch.set_num_threads(threads)


@pytest.mark.nightly
def test_a_rank_with_a_flipped_bit_is_a_finding_that_drains_its_host(tmp_path: Path) -> None:
    module = "tests.training.benchmarks.base.flipping_workload"
    tests = ["training", "memory", "host_to_device_numa", "memory_capacity", "host_matmul", "disk_write"]
    settings = [*SMALL, f"tests={tests}", f"capacity_bytes={32 << 20}", f"disk_bytes={8 << 20}"]
    arguments = [part for setting in settings for part in ("--set", setting)]
    code, _ = run(tmp_path, plain_processes(3), [module, "--vendor", "cpu", *arguments])
    assert code == 0
    steps = values_of(tmp_path, 0, Event.STEP_END)
    assert steps[0]["unit"] == "steps/s"
    (digests,) = {tuple(values_of(tmp_path, rank, Event.STEP_END)[0]["digests"].values()) for rank in (0, 2)}
    assert all(len(each) == 16 for each in digests) and len(digests) == LAYERS
    case = MeasuredCase(name="D", config={}, nnodes=1, nproc=3)
    every = OUTCOME.findings(case, MeasuredRound(number=1, metrics={}, steps=steps, hosts={0: "n1"}))
    for found, test, where in zip(every, tests, ("layer ", "copy", "copy"), strict=False):
        assert (found.kind, found.severity, found.drained_hosts) == ("different_results", "fault", ("n1",))
        assert found.sentence.startswith(f"n1 device 1: {test}: other bits than 2 of 3 of its kind in {where}")
    assert len(every) == 3, "and no test in which nothing flipped"
    assert all(step["digests"] and step["correct"] == "pass" for step in steps), "each copy is like its source"


@pytest.mark.parametrize(
    "step", [{"odd_ranks": ["1"]}, {"odd_ranks": {"x": 1, "-1": "", "99": ""}}, {"split_ranks": [[99], "7"]}, {}]
)
def test_what_a_host_makes_up_is_no_finding(step: dict[str, object]) -> None:
    case = MeasuredCase(name="D", config={}, nnodes=2, nproc=2)
    assert OUTCOME.findings(case, MeasuredRound(number=1, metrics={}, steps=[step], hosts={0: "n1", 1: "n2"})) == []


@pytest.mark.parametrize("test", ["disk_read", "host_memory"])
def test_wrong_bits_of_a_disk_or_host_accuse_no_device(test: str) -> None:
    case = MeasuredCase(name="D", config={}, nnodes=3, nproc=2)
    steps = [{"test": test, "odd_ranks": {"2": "other bits", "3": "other bits"}}]
    hosts = {0: "n1", 1: "n2", 2: "n3"}
    (found,) = OUTCOME.findings(case, MeasuredRound(number=1, metrics={}, steps=steps, hosts=hosts))
    assert (found.part, found.device, found.drained_hosts) == ("host", "", ("n2",))
    assert found.sentence == f"host n2: {test}: other bits" and "replace" not in found.suggested_action
    group = Namespace(device=torch.device("cuda", 3))
    assert device_of(test, cast(ProcessGroup, group)) == CPU, "compared among hosts of one kind of processor"


def test_a_split_kind_is_a_warning_that_drains_nobody() -> None:
    case = MeasuredCase(name="D", config={}, nnodes=2, nproc=1)
    steps = [{"test": "training", "split_ranks": [[0, 1]]}]
    (found,) = OUTCOME.findings(case, MeasuredRound(number=1, metrics={}, steps=steps, hosts={0: "n1", 1: "n2"}))
    assert (found.part, found.hosts, found.severity, found.drained_hosts) == ("group", ("n1", "n2"), "warning", ())
