"""The test bed: N real hosts on one machine, brought up in parallel and taken away without a trace.

    with TestBed(2, folder) as bed:
        bed.hosts[0].exec(["hostname"])

A bed belongs to its folder. What an earlier bed of the folder left running (its process was killed) is removed before a
new one comes up; a bed left up on purpose (`python -m tests.cluster up`) is not.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from ipaddress import IPv4Network
from pathlib import Path
from types import TracebackType

from tests.cluster import access, network, seed
from tests.cluster.engine import bed_id, remove_cgroups
from tests.cluster.host import ClusterHost
from tests.cluster.images import BASE_IMAGE, WHEELHOUSE
from tests.cluster.lock import FolderLock
from tests.cluster.needs import missing
from tests.cluster.network import MAX_HOSTS, Network
from tests.cluster.system import TestBedError

STATE = "state.json"
HOSTS_FOLDER = "hosts"
PARALLEL = 8


@dataclass(frozen=True)
class _State:
    """What another process must know to find a bed again; written before anything of it exists."""

    subnet: str
    engines: list[bool]
    persistent: bool


class TestBed:
    """`n` hosts, node1 to node<n>. `engine`: whether each has Docker, or one value a host; hosts without are cheap.

    `images` gives every engine the tests' images (and makes them first if need be); `persistent` leaves the bed up when
    this process ends; `shared`: a folder that all hosts may write to.
    """

    __test__ = False

    def __init__(
        self,
        n: int,
        folder: Path | str,
        *,
        engine: bool | Sequence[bool] = True,
        images: bool = False,
        persistent: bool = False,
        shared: Path | None = None,
    ) -> None:
        if not 1 <= n <= MAX_HOSTS:
            raise ValueError(f"n: {n} hosts asked for, 1 to {MAX_HOSTS} are possible")
        self.folder = Path(folder).resolve()
        self._engines = [engine] * n if isinstance(engine, bool) else list(engine)
        if len(self._engines) != n:
            raise ValueError(f"engine: {len(self._engines)} values for {n} hosts")
        self._images = images and any(self._engines)
        self._persistent, self._shared = persistent, shared
        self._lock = FolderLock(self.folder)
        self.bed = bed_id(self.folder)
        self.hosts: list[ClusterHost] = []

    @classmethod
    def load(cls, folder: Path | str) -> TestBed | None:
        """The bed of a folder as another process left it, None if there is none."""
        folder = Path(folder).resolve()
        state = _read_state(folder)
        if state is None:
            return None
        bed = cls(len(state.engines), folder, engine=state.engines, persistent=state.persistent)
        bed._lay_out(IPv4Network(state.subnet))
        return bed

    @property
    def key_file(self) -> Path:
        return self.folder / access.KEY_FILE

    @property
    def known_hosts(self) -> Path:
        return self.folder / access.KNOWN_HOSTS

    @property
    def cluster_conf(self) -> Path:
        return self.folder / access.CLUSTER_CONF

    @property
    def test_conf(self) -> Path:
        return self.folder / access.TEST_CONF

    def ssh_argv(self, host: ClusterHost, *command: str) -> list[str]:
        """argv of an OpenSSH client that runs a (quoted) command on a host of the bed."""
        return [*access.ssh_argv(self.folder, host), *command]

    def __enter__(self) -> TestBed:
        self.up()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.down()

    def up(self) -> None:
        """Bring all hosts up; on any failure or Ctrl-C everything is taken down again.

        Raises:
            TestBedError: the machine lacks something, the folder's bed is up already, or a host did not come up.
        """
        lacking = missing()
        if lacking:
            raise TestBedError("this machine lacks what a test bed needs: " + "; ".join(lacking))
        if self._images:
            seed.make()
        self._lock.acquire()
        self._take_down_leftover()
        try:
            self._bring_up()
        except BaseException:
            self.down()
            raise
        if self._persistent:
            self._lock.release()

    def _take_down_leftover(self) -> None:
        state = _read_state(self.folder)
        if state is not None and state.persistent and network.namespaces(self.bed):
            self._lock.release()
            down = f".venv/bin/python -m tests.cluster down --dir {self.folder}"
            raise BedIsUpError(f"{self.folder}: its bed is up; {down}")
        try:
            _remove(self.folder, purge=False)
        except BaseException:
            self._lock.release()
            raise

    def _bring_up(self) -> None:
        with network.choosing():
            subnet = network.choose_subnet(self.bed)
            state = _State(subnet=str(subnet), engines=self._engines, persistent=self._persistent)
            temporary = self.folder / f"{STATE}.new"
            temporary.write_text(json.dumps(state.__dict__) + "\n")
            temporary.replace(self.folder / STATE)
            network.create(self._lay_out(subnet), len(self.hosts))
        access.write_keys(self.folder, self.hosts)
        _in_parallel(self.boot, self.hosts)
        access.write_cluster_conf(self.folder, self.hosts)
        access.write_test_conf(self.folder, base_image=BASE_IMAGE, wheelhouse=WHEELHOUSE, nnodes=len(self.hosts))

    def _lay_out(self, subnet: IPv4Network) -> Network:
        wire = Network(self.bed, subnet)
        disks = self.folder / HOSTS_FOLDER
        self.hosts = [
            ClusterHost(wire, number, disks / f"node{number}", engine=engine, shared=self._shared)
            for number, engine in enumerate(self._engines, start=1)
        ]
        return wire

    def boot(self, host: ClusterHost) -> None:
        """Switch a host on, also again after host.kill(): an empty disk, the same keys, its images kept."""
        host.link_up()
        if self._images and host.has_engine:
            seed.plant(host.engine_data)
        host.boot(access.read_access(self.folder, host, self.hosts))

    def down(self, *, purge: bool = False) -> None:
        """Take everything away; the engines' images stay in the folder for the next time unless `purge`."""
        self._lock.acquire()
        try:
            _in_parallel(ClusterHost.shut_down, self.hosts)
        finally:
            try:
                _remove(self.folder, purge=purge)
            finally:
                self._lock.release()


class BedIsUpError(TestBedError):
    """The folder's bed was left up on purpose."""


def take_down(folder: Path | str, *, purge: bool = False) -> bool:
    """Take down the bed of a folder, whatever state it is in; False if there was nothing of it."""
    folder = Path(folder).resolve()
    bed = TestBed.load(folder)
    existed = bed is not None or bool(network.namespaces(bed_id(folder))) or (folder / HOSTS_FOLDER).is_dir()
    if not folder.is_dir():
        return False
    (bed or TestBed(1, folder)).down(purge=purge)
    return existed


def _read_state(folder: Path) -> _State | None:
    with contextlib.suppress(OSError, ValueError, TypeError):
        return _State(**json.loads((folder / STATE).read_text()))
    return None


def _remove(folder: Path, *, purge: bool) -> None:
    """Remove what there is of a folder's bed: found by name on the machine and by the names we write in the folder."""
    bed = bed_id(folder)
    network.remove(bed)
    remove_cgroups(bed)
    for name in (*access.FILES, STATE, f"{STATE}.new"):
        (folder / name).unlink(missing_ok=True)
    for disk in _disks(folder):
        for part in disk.iterdir():
            if part.name == "docker" and not purge:
                continue
            shutil.rmtree(part) if part.is_dir() else part.unlink()
        if purge or not any((disk / "docker").glob("*")):
            shutil.rmtree(disk)
    if purge:
        shutil.rmtree(folder / HOSTS_FOLDER, ignore_errors=True)


def _disks(folder: Path) -> Iterator[Path]:
    disks = folder / HOSTS_FOLDER
    return iter(sorted(disks.iterdir())) if disks.is_dir() else iter(())


def _in_parallel(action: Callable[[ClusterHost], None], hosts: Sequence[ClusterHost]) -> None:
    """Do it for all hosts, a few at once; all are tried, and the first failure is raised."""
    if not hosts:
        return
    with ThreadPoolExecutor(max_workers=min(PARALLEL, len(hosts))) as pool:
        futures = [pool.submit(action, host) for host in hosts]
    for future in futures:
        future.result()
