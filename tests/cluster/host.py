"""One host of the test bed: its own network, host name, root file system, process ids, sshd and Docker engine.

To the controller it is a machine like any other. A test can hurt it: pull its cable, stop sshd or the engine, kill it,
or make its wire slow, late or lossy.
"""

from __future__ import annotations

import os
import shutil
import socket
import stat
import sys
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess

import docker

from tests.cluster import engine as engines
from tests.cluster.guest import GUEST_ENVIRONMENT, GUEST_PATH, Guest
from tests.cluster.netem import Impairment, Netem
from tests.cluster.network import NETNS_FOLDER, Network
from tests.cluster.system import TestBedError, kill_and_wait, run, wait_until

REPOSITORY = Path(__file__).resolve().parents[2]
SSH_PORT = 22
SSHD_SECONDS = 15.0
BOOT_ID = "/proc/sys/kernel/random/boot_id"
SSHD = ("sshd", "sshd-session", "sshd-auth")  # the listener and its connections; one name before OpenSSH 9.8
SSHD_CONFIG = """\
Port {port}
ListenAddress {address}
HostKey /etc/ssh/ssh_host_ed25519_key
PidFile /run/sshd.pid
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
PrintMotd no
Subsystem sftp internal-sftp
"""
# A look-up that no file answers ends at once instead of waiting for a name server that does not exist.
RESOLV_CONF = "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n"


@dataclass(frozen=True)
class Access:
    """What a host lets in and how it shows who it is: text of /etc/hosts, the client's public key, its own key pair."""

    etc_hosts: str
    client_public_key: str
    host_private_key: str


class ClusterHost:
    """Host `number` (from 1) of a bed; `folder` holds its disk. `engine` says whether it has Docker at all; `shared` is
    a folder of the machine that it may write to, at the same path.
    """

    def __init__(
        self, network: Network, number: int, folder: Path, *, engine: bool, shared: Path | None = None
    ) -> None:
        self.name = f"node{number}"
        self.address = network.address(number)
        self.folder = folder
        self.has_engine = engine
        self._seen = [*map(str, shared_paths()), *([] if shared is None else [f"rw:{shared}"])]
        self._network = network
        self._number = number
        self._guest = Guest(folder, "host_init.sh")
        self._netem = Netem(network, number)

    @property
    def pid(self) -> int | None:
        """Process id of its init as seen from here, None while it is switched off."""
        return self._guest.pid

    @property
    def engine_data(self) -> Path:
        """Where its engine keeps images and containers, as seen from here; it outlives the host."""
        return self.folder / "docker"

    @property
    def docker_socket(self) -> Path:
        """The engine's socket as this process can reach it, without ssh."""
        return self._guest.path(engines.SOCKET)

    def connect_docker(self, *, timeout: int = 60) -> docker.DockerClient:
        """A client of the host's engine that goes past ssh; close it."""
        return engines.connect(self.docker_socket, timeout=timeout)

    def remove_containers(self) -> None:
        """Remove every container of its engine: those of a session that was killed are there again with its images."""
        client = self.connect_docker()
        try:
            for container in client.containers.list(all=True, ignore_removed=True):
                container.remove(force=True)
        finally:
            client.close()

    def exec(
        self,
        argv: Sequence[str],
        *,
        timeout: float = 30.0,
        check: bool = True,
        text_input: str | None = None,
        env: dict[str, str] | None = None,
    ) -> CompletedProcess[str]:
        """Run a command on the host as root without ssh.

        Raises:
            TestBedError: the host is off, the deadline passed, or (with `check`) the exit code is not 0.
        """
        return self._guest.exec(argv, timeout=timeout, check=check, text_input=text_input, env=env)

    def entering(self, **environment: str) -> list[str]:
        """Words that run the command after them on the host in the repository's folder, with this environment."""
        values = [f"{name}={value}" for name, value in (GUEST_ENVIRONMENT | environment).items()]
        return [*self._guest.entering(), "env", "--ignore-environment", f"--chdir={REPOSITORY}", *values]

    def path(self, inside: str) -> Path:
        """A path of the host as this process can read and write it."""
        return self._guest.path(inside)

    def pids(self, *names: str) -> list[int]:
        """Processes of the host outside containers with one of these names, numbered as seen from here."""
        return self._guest.pids(*names)

    @property
    def head_address(self) -> str:
        """The head node's address on its network."""
        return self._network.head_address

    def start_daemon(self, argv: Sequence[str], log: str) -> Callable[[], bool]:
        """Start a command on the host that lives until the host is switched off, its output appended to its file `log`.

        Returns a function that says whether it still runs.
        """
        return self._guest.start_daemon(argv, log)

    def boot(self, access: Access) -> None:
        """Switch the host on with an empty disk (only its images stay), start sshd and, if it has one, its engine.

        Raises:
            TestBedError: it did not come up; what failed and the end of its log are in the message.
        """
        self._prepare_disk(access)
        self._switch_on()

    def forget_restart(self) -> None:
        """Tell the machine's own boot again, as all hosts of a bed do."""
        (self.folder / "boot_id").unlink()
        self.exec(["umount", BOOT_ID])

    def _switch_on(self) -> None:
        launcher = ["nsenter", f"--net={NETNS_FOLDER / self._network.netns(self._number)}"]
        launcher += [
            "unshare",
            "--mount",
            "--uts",
            "--ipc",
            "--pid",
            "--fork",
            "--kill-child",
            "--propagation",
            "private",
        ]
        self._guest.start(launcher, [self.name, *self._seen])
        self.start_sshd()
        if self.has_engine:
            self.start_engine()

    def _prepare_disk(self, access: Access) -> None:
        (self.folder / "boot_id").unlink(missing_ok=True)
        for name in ("root", "upper", "work", "home", "tmp", "vartmp"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
            (self.folder / name).mkdir(parents=True, mode=0o755)
        self.engine_data.mkdir(mode=0o710, exist_ok=True)
        for name in ("tmp", "vartmp"):
            (self.folder / name).chmod(0o1777)
        (self.folder / "home").chmod(0o700)
        etc = self.folder / "upper/etc"
        files = {
            "hostname": (f"{self.name}\n", 0o644),
            "hosts": (access.etc_hosts, 0o644),
            "resolv.conf": (RESOLV_CONF, 0o644),
            # On many machines root's password is locked ("!"), which makes sshd refuse keys, too.
            "shadow": ("root:*:19000:0:99999:7:::\nsshd:!:19000::::::\n", 0o640),
            "ssh/sshd_config": (SSHD_CONFIG.format(port=SSH_PORT, address=self.address), 0o644),
            "ssh/ssh_host_ed25519_key": (access.host_private_key, 0o600),
            "docker/clusterdyno.json": ("{}\n", 0o644),
        }
        for name, (text, mode) in files.items():
            _write(etc / name, text, mode)
        _write(self.folder / "home/.ssh/authorized_keys", access.client_public_key, 0o600)
        (self.folder / "home/.ssh").chmod(0o700)
        if not self.has_engine:
            self._hide("docker", "dockerd", "containerd", "podman")

    def _hide(self, *programs: str) -> None:
        """Make programs of the machine absent on the host: an overlay's whiteout is a character device 0/0."""
        for folder in {Path(entry).resolve() for entry in GUEST_PATH.split(":")}:
            for program in programs:
                if (folder / program).exists():
                    place = self.folder / "upper" / folder.relative_to("/") / program
                    place.parent.mkdir(parents=True, exist_ok=True)
                    os.mknod(place, stat.S_IFCHR, os.makedev(0, 0))

    def reboot(self) -> None:
        """Switch it off and on as a reset does: its disk stays, its kernel gets another boot id."""
        self.kill()
        (self.folder / "boot_id").write_text(f"{uuid.uuid4()}\n")
        self.link_up()
        self._switch_on()

    def kill(self) -> None:
        """Switch it off as a power cut does: nothing of it runs or answers any more. boot() brings it back."""
        self.link_down()
        self._guest.kill()

    def shut_down(self) -> None:
        """Stop its engine in order, so that its images stay whole, and then everything else."""
        if self._guest.pid is not None:
            engines.stop_dockerd(self._guest)
        self._guest.kill()
        if self._netem.ailments:
            self._netem.clear()

    def link_down(self) -> None:
        """Pull its network cable: neither the head node nor the other hosts reach it."""
        run(["ip", "link", "set", self._network.veth(self._number), "down"])

    def link_up(self) -> None:
        """Plug its network cable in again."""
        run(["ip", "link", "set", self._network.veth(self._number), "up"])

    def impair(
        self, *, rate: str | None = None, delay: float = 0.0, loss: float = 0.0, peer: ClusterHost | None = None
    ) -> None:
        """Make its wire bad in what it sends: to everybody, or to `peer` alone, in place of what was set for that.

        `rate` in tc's units ("100mbit"), `delay` in seconds added, `loss` the share of the packets that is lost. What
        is set for a peer holds instead of what is set for everybody, not on top of it.
        """
        self._netem.set(peer.address if peer else "", Impairment(rate=rate, delay_s=delay, loss=loss))

    def change_rate(self, rate: str) -> None:
        """Another rate in place of that which impair() set for everybody, at once and without a gap."""
        self._netem.change(rate)

    def mend(self, *, peer: ClusterHost | None = None) -> None:
        """End impair() for that peer, or what was set for everybody."""
        self._netem.set(peer.address if peer else "", None)

    def drop_head(self) -> None:
        """Lose every packet to the head node; the hosts still reach each other."""
        self._head_route("replace")

    def rejoin_head(self) -> None:
        """End drop_head()."""
        self._head_route("delete")

    def _head_route(self, action: str) -> None:
        netns = self._network.netns(self._number)
        run(["ip", "-netns", netns, "route", action, "blackhole", f"{self._network.head_address}/32"])

    def start_sshd(self) -> None:
        """Start sshd and wait until it greets.

        Raises:
            TestBedError: it did not.
        """
        self.exec([shutil.which("sshd", path="/usr/sbin:/usr/local/sbin") or "/usr/sbin/sshd"])
        wait_until(self.sshd_answers, timeout=SSHD_SECONDS, what=f"{self.name}: a greeting of sshd on {self.address}")

    def stop_sshd(self, *, sessions: bool = True) -> None:
        """Kill sshd; with `sessions` the connections it serves, too (what they started may live on)."""
        file = self.path("/run/sshd.pid")
        listener = int(file.read_text()) if file.exists() else None
        # First what accepts connections, so that no new session starts while the others end.
        kill_and_wait([pid for pid in self.pids("sshd") if _pid_inside(pid) == listener])
        if sessions:
            kill_and_wait(self.pids(*SSHD))

    def sshd_answers(self) -> bool:
        """Whether its sshd greets who connects from here."""
        try:
            with socket.create_connection((self.address, SSH_PORT), timeout=1) as connection:
                return connection.recv(4) == b"SSH-"
        except OSError:
            return False

    def start_engine(self) -> None:
        """Start its Docker engine and wait until it answers.

        Raises:
            TestBedError: it did not, or this is a host without Docker.
        """
        if not self.has_engine:
            raise TestBedError(f"{self.name}: is a host without Docker")
        engines.start_dockerd(
            self._guest,
            data_root="/var/lib/docker",
            config_file="/etc/docker/clusterdyno.json",
            cgroup_parent=f"/{engines.CGROUP_ROOT}/{self._network.bed}/{self.name}",
            log="/var/log/dockerd.log",
        )

    def stop_engine(self, *, kill: bool = False) -> None:
        """Stop its Docker engine, in order or (with `kill`) as a crash does."""
        engines.stop_dockerd(self._guest, kill=kill)


def shared_paths() -> list[Path]:
    """What every host sees read-only, live, at the machine's own paths: this checkout and the Python that runs here.

    The rest of the machine's root file system a host sees as a copy of its own; separate file systems among what
    programs need come along, too.
    """
    wanted = [REPOSITORY, Path(sys.prefix), Path(sys.base_prefix), *filter(Path.is_mount, (Path("/usr"), Path("/opt")))]
    paths = {path.resolve() for path in wanted}
    paths = {path for path in paths if path.is_mount() or not path.is_relative_to("/usr")}
    return sorted(path for path in paths if not any(path != other and path.is_relative_to(other) for other in paths))


def _pid_inside(pid: int) -> int | None:
    """A process's id in its own PID namespace."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return None
    return next((int(line.split()[-1]) for line in status.splitlines() if line.startswith("NSpid:")), None)


def _write(path: Path, text: str, mode: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
