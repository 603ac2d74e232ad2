"""A real OpenSSH server on loopback, with keys and files of its own, run as the user who runs the tests."""

import contextlib
import gc
import getpass
import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

import psutil

from run_benchmarks.hosts.endpoint import Endpoint
from run_benchmarks.hosts.ssh import SshHost

ADDRESS = "127.0.0.1"
SSHD = shutil.which("sshd", path=f"/usr/sbin:/usr/local/sbin:{os.environ.get('PATH', '')}")
START_SECONDS = 10.0
CONFIG = """\
ListenAddress {address}:{port}
HostKey {folder}/host_key
PidFile none
AuthorizedKeysFile {folder}/authorized_keys
StrictModes no
PubkeyAuthentication yes
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
UsePAM {pam}
SetEnv HOME={folder}
PrintMotd no
LogLevel ERROR
"""


def free_port() -> int:
    """A TCP port of loopback that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind((ADDRESS, 0))
        return int(probe.getsockname()[1])


def make_key(file: Path) -> Path:
    """Make an Ed25519 key pair with ssh-keygen (an existing one is replaced)."""
    file.unlink(missing_ok=True)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", file], check=True)
    return file


def public_part(key: Path) -> str:
    """Type and base64 of a key pair's public key."""
    return " ".join(key.with_name(f"{key.name}.pub").read_text().split()[:2])


def open_descriptors() -> int:
    """How many file descriptors this process has, apart from those that wait for the garbage collector."""
    gc.collect()
    return len(list(Path("/proc/self/fd").iterdir()))


class SshServer:
    """sshd in a folder (made if missing): host_key, client_key, authorized_keys, known_hosts.

    `extra` are lines of sshd_config that go before ours.
    """

    def __init__(self, folder: Path, extra: str = "") -> None:
        folder.mkdir(exist_ok=True)
        self.folder, self.extra = folder, extra
        self.port = free_port()
        self.host_key = make_key(folder / "host_key")
        self.client_key = make_key(folder / "client_key")
        self.known_hosts = folder / "known_hosts"
        self.known_hosts.write_text(f"[{ADDRESS}]:{self.port} {public_part(self.host_key)}\n")
        (folder / "authorized_keys").write_text(f"{public_part(self.client_key)}\n")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it greets."""
        assert SSHD is not None
        as_root = os.geteuid() == 0
        if as_root:  # where no service manager made it, sshd's privilege separation lacks its folder
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        config = self.folder / "sshd_config"
        # PAM lets root in by key, also where root's password is locked; it needs root itself.
        pam = "yes" if as_root and Path("/etc/pam.d/sshd").exists() else "no"
        lines = CONFIG.format(address=ADDRESS, port=self.port, folder=self.folder, pam=pam)
        config.write_text(f"{self.extra}\n{lines}")  # the first value of a keyword counts
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen([SSHD, "-D", "-e", "-f", config], stderr=log, stdin=subprocess.DEVNULL)
        limit = time.monotonic() + START_SECONDS
        while not self._greets():
            if self._process.poll() is not None or time.monotonic() > limit:
                raise RuntimeError(f"sshd did not start: {(self.folder / 'log').read_text()}")
            time.sleep(0.02)

    def _greets(self) -> bool:
        try:
            with socket.create_connection((ADDRESS, self.port), timeout=1) as connection:
                return connection.recv(4) == b"SSH-"
        except OSError:
            return False

    def sessions(self) -> list[psutil.Process]:
        """The processes that serve connections."""
        assert self._process is not None
        sessions = []
        for child in psutil.Process(self._process.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                if child.name().startswith("sshd"):
                    sessions.append(child)
        return sessions

    def session_pids(self) -> list[int]:
        """Their numbers."""
        return [session.pid for session in self.sessions()]

    def kill_sessions(self) -> int:
        """Kill the processes that serve connections, as a broken link does; returns how many there were."""
        sessions = self.sessions()
        for session in sessions:
            with contextlib.suppress(psutil.NoSuchProcess):
                session.kill()
        psutil.wait_procs(sessions, timeout=5)
        return len(sessions)

    def stop(self) -> None:
        """Stop it with all its sessions."""
        if self._process is not None:
            self.kill_sessions()
            self._process.kill()
            self._process.wait()
            self._process = None

    def endpoint(
        self, *, key: Path | None = None, known_hosts: Path | None = None, port: int | None = None
    ) -> Endpoint:
        """The way to it."""
        return Endpoint(
            host=ADDRESS,
            port=port or self.port,
            user=getpass.getuser(),
            key=key or self.client_key,
            known_hosts=known_hosts or self.known_hosts,
        )

    def host(self, *, key: Path | None = None, known_hosts: Path | None = None, port: int | None = None) -> SshHost:
        """An SshHost of it that is not connected yet."""
        return SshHost(self.endpoint(key=key, known_hosts=known_hosts, port=port))
