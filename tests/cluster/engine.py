"""Docker engines of the test bed: how a dockerd is started apart from any other, and one that needs no host."""

import contextlib
import errno
import hashlib
import json
import os
import shutil
import signal
from functools import partial
from pathlib import Path

import docker
import docker.errors
import requests

from tests.cluster.guest import GUEST_PATH, Guest, tail
from tests.cluster.lock import FolderLock
from tests.cluster.system import TestBedError, kill_and_wait, wait_until

SOCKET = "/run/docker.sock"
HOOKS = Path(__file__).with_name("hooks")
"""Programs that an engine looks for when it starts: what makes `--gpus` work there."""
START_SECONDS = 30.0
STOP_SECONDS = 15.0
CGROUP_ROOT = "clusterdyno"


def bed_id(folder: Path) -> str:
    """Six hexadecimal digits that stand for a folder in the names of bridges, namespaces and control groups."""
    return hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:6]


def start_dockerd(guest: Guest, *, data_root: str, config_file: str, cgroup_parent: str, log: str) -> Path:
    """Start a dockerd with its own containerd in the guest and wait until it answers; paths are the guest's.

    Returns the path of its socket for this process. Its containers have the host's network or none: it makes no
    bridge and no packet filter rules.

    Raises:
        TestBedError: it did not answer in time; the end of its log is in the message.
    """
    argv = [
        "env",
        f"PATH={HOOKS}:{GUEST_PATH}",
        "dockerd",
        f"--data-root={data_root}",
        f"--config-file={config_file}",
        f"--host=unix://{SOCKET}",
        f"--cgroup-parent={cgroup_parent}",
        "--exec-opt=native.cgroupdriver=cgroupfs",
        "--bridge=none",
        "--iptables=false",
        "--shutdown-timeout=2",
    ]
    runs = guest.start_daemon(argv, log)
    socket = guest.path(SOCKET)
    try:
        what = "an answer of dockerd"
        wait_until(lambda: answers(socket) or not runs(), timeout=START_SECONDS, what=what, pause=0.1)
        if not runs():
            raise TestBedError("dockerd ended")
    except TestBedError as error:
        raise TestBedError(f"{guest.folder}: {error}; its log ends with: {tail(guest.path(log))}") from error
    return socket


def stop_dockerd(guest: Guest, *, kill: bool = False) -> None:
    """End the guest's dockerd and containerd: in order (containers are stopped first), or as a crash does."""
    if not kill:
        kill_and_wait(guest.pids("dockerd"), timeout=STOP_SECONDS, kind=signal.SIGTERM)
    kill_and_wait(guest.pids("dockerd", "containerd"))


def connect(socket: Path, *, timeout: int = 60) -> docker.DockerClient:
    """A client of the engine behind a socket; close it."""
    return docker.DockerClient(base_url=f"unix://{socket}", timeout=timeout)


def answers(socket: Path) -> bool:
    """Whether an engine answers behind the socket."""
    try:
        client = connect(socket, timeout=5)
    except (docker.errors.DockerException, requests.exceptions.RequestException):
        return False
    try:
        return bool(client.ping())
    except (docker.errors.DockerException, requests.exceptions.RequestException):
        return False
    finally:
        client.close()


def remove_cgroups(name: str) -> None:
    """Remove the empty control groups clusterdyno/<name> and below, and clusterdyno itself when it is the last."""
    root = Path("/sys/fs/cgroup")
    for hierarchy in [root, *(entry for entry in root.iterdir() if entry.is_dir())]:
        top = hierarchy / CGROUP_ROOT
        found = sorted((Path(folder) for folder, _, _ in os.walk(top / name)), reverse=True)
        for folder in found:
            # The kernel lets go of a killed container's control group a little after its last process.
            wait_until(partial(_removed, folder), timeout=10, what=f"the removal of {folder}")
        with contextlib.suppress(OSError):  # other beds' groups are still in it
            top.rmdir()


def _removed(folder: Path) -> bool:
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        return False
    return True


class Engine:
    """A Docker engine of its own, with the machine's network and file system: for tests of containers without hosts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self._guest = Guest(self.folder, "engine_init.sh")
        self._cgroup = bed_id(self.folder)
        self._lock = FolderLock(self.folder)

    @property
    def data(self) -> Path:
        """Where it keeps images and containers; it outlives the engine."""
        return self.folder / "docker"

    @property
    def socket(self) -> Path:
        """Its Unix socket, valid while it runs."""
        return self._guest.path(SOCKET)

    def start(self) -> None:
        """Start it; what an earlier one of this folder left running is ended first, its images stay.

        Raises:
            TestBedError: it did not come up.
        """
        self._lock.acquire()
        self._end()
        config = self.folder / "daemon.json"
        config.write_text(json.dumps({}))
        launcher = ["unshare", "--mount", "--ipc", "--pid", "--fork", "--kill-child", "--propagation", "slave"]
        self._guest.start(launcher, [])
        try:
            start_dockerd(
                self._guest,
                data_root=str(self.data),
                config_file=str(config),
                cgroup_parent=f"/{CGROUP_ROOT}/{self._cgroup}",
                log=str(self.folder / "dockerd.log"),
            )
        except BaseException:
            self.stop()
            raise

    def connect(self, *, timeout: int = 60) -> docker.DockerClient:
        """A client of this engine; close it."""
        return connect(self.socket, timeout=timeout)

    def stop(self, *, purge: bool = False) -> None:
        """End it and its containers; with `purge` its images go, too. Nothing to do when it is down."""
        self._lock.acquire()
        try:
            self._end()
            if purge and self.data.exists():
                shutil.rmtree(self.data)
        finally:
            self._lock.release()

    def _end(self) -> None:
        stop_dockerd(self._guest)
        self._guest.kill()
        remove_cgroups(self._cgroup)


def start_engine(folder: Path) -> Engine:
    """Start an engine that keeps its images in `folder`; call its stop().

    Raises:
        TestBedError: it did not come up.
    """
    engine = Engine(folder)
    engine.start()
    return engine
