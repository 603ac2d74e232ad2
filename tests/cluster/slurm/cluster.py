"""Slurm on test hosts: slurmctld, slurmdbd with MariaDB and munged on the head node, slurmd and munged on each host.

    with SlurmCluster(2, folder) as cluster:
        cluster.call(["srun", "--nodes=2", "hostname"])

No systemd is needed. What runs on the head node ends with the process that started it, however that ends.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from tests.cluster import needs
from tests.cluster.bed import TestBed
from tests.cluster.guest import GUEST_PATH, tail
from tests.cluster.host import ClusterHost
from tests.cluster.network import RUN_FOLDER
from tests.cluster.slurm import files
from tests.cluster.system import TestBedError, run, wait_until

PROGRAMS = {
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "slurmdbd": "slurmdbd",
    "sbatch": "slurm-client",
    "munged": "munge",
    "mariadbd": "mariadb-server",
    "mariadb-install-db": "mariadb-server",
    "mariadb": "mariadb-client",
}
START_SECONDS, STOP_SECONDS = 30.0, 20.0
MUNGE_KEY = "/etc/munge/clusterdyno.key"
KEY_BYTES = 128
OTHER_USER = "nobody"


def missing() -> list[str]:
    """What this machine lacks for a Slurm cluster, one sentence each."""
    absent = {name: package for name, package in PROGRAMS.items() if shutil.which(name, path=GUEST_PATH) is None}
    packages = " ".join(sorted(set(absent.values())))
    lacking = [f"the programs {', '.join(absent)} (apt-get install {packages})"] if absent else []
    return [*needs.missing(), *lacking]


class SlurmCluster:
    """`n` hosts, node1 to node<n>, of files.CPUS and files.MEMORY_MB each; partitions `main` and, of lower priority,
    `low`. Root and OTHER_USER may submit. All see `shared` at its path.

    `settings`: lines of slurm.conf that replace those of files.SLURM_CONF_TEXT.
    """

    def __init__(self, n: int, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        self._settings = settings or {}
        self.folder = folder.resolve()
        self.shared = self.folder / "shared"
        self.bed = TestBed(n, self.folder / "bed", engine=False, shared=self.folder)
        self._daemons: list[tuple[str, subprocess.Popen[bytes]]] = []
        self._places: files.Places | None = None
        # Of the database, in memory: it is thrown away, and waits for no disk.
        self._data = Path(f"/dev/shm/cdyno-mariadb-{self.bed.bed}")

    @property
    def hosts(self) -> list[ClusterHost]:
        """Its nodes."""
        return self.bed.hosts

    @property
    def environment(self) -> dict[str, str]:
        """What Slurm's commands need in their environment on the head node."""
        assert self._places is not None
        return {"SLURM_CONF": str(self._places.conf)}

    def call(self, argv: Sequence[str], *, timeout: float = 30.0, check: bool = True) -> str:
        """The output of one of Slurm's commands on the head node.

        Raises:
            TestBedError: the deadline passed, or (with `check`) the exit code is not 0.
        """
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("SLURM_", "SBATCH_", "SQUEUE_"))}
        return run(argv, timeout=timeout, check=check, env=kept | self.environment).stdout

    def __enter__(self) -> SlurmCluster:
        with ExitStack() as stack:
            shutil.rmtree(self.shared, ignore_errors=True)
            self.shared.mkdir(parents=True)
            self.folder.chmod(0o755)  # OTHER_USER reads slurm.conf there
            self.bed.up()
            stack.callback(self.down)
            self._start()
            stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.down()

    def _start(self) -> None:
        shutil.rmtree(self.folder / "slurm", ignore_errors=True)
        shutil.rmtree(self._data, ignore_errors=True)
        folder = self.folder / "slurm"
        (folder / "state").mkdir(parents=True)
        munge = RUN_FOLDER / f"cdyno-munge-{self.bed.bed}"
        munge.mkdir(mode=0o755, exist_ok=True)
        ports = _free_ports(3)
        self._places = places = files.Places(
            folder=folder, munge=munge / "socket", ctld_port=ports[0], dbd_port=ports[1], sql_port=ports[2]
        )
        files.write(places, self.hosts, self.hosts[0].head_address, self._settings)
        key = folder / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(secrets.token_bytes(KEY_BYTES))
        self._daemon(_munged(places.munge, key, folder))
        self._start_accounting(places)
        self.start_controller()
        for host in self.hosts:
            self.boot_node(host)
        self.wait_idle()

    def start_controller(self) -> None:
        """Start slurmctld, also again after stop_controller()."""
        assert self._places is not None
        self._daemon(["slurmctld", "-D", "-f", str(self._places.conf)])
        _wait(lambda: self._answers(["scontrol", "ping"]), "slurmctld")

    def start_accounts(self) -> None:
        """Start slurmdbd, also again after stop("slurmdbd")."""
        assert self._places is not None
        self._daemon(["slurmdbd", "-D"], SLURM_CONF=str(self._places.conf))
        _wait(lambda: self._answers(["sacctmgr", "--noheader", "show", "cluster"]), "slurmdbd")

    def stop(self, name: str) -> None:
        """End slurmctld or slurmdbd in order; it keeps its state."""
        (found,) = [each for each in self._daemons if each[0] == name]
        self._daemons.remove(found)
        found[1].terminate()
        found[1].wait(STOP_SECONDS)

    def _start_accounting(self, places: files.Places) -> None:
        data, sql = self._data, places.folder / "sql"
        run(
            [
                "mariadb-install-db",
                "--no-defaults",
                f"--datadir={data}",
                "--user=root",
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
            ],
            timeout=200,
        )
        options = [f"--datadir={data}", f"--socket={sql}", f"--port={places.sql_port}", "--bind-address=127.0.0.1"]
        options += [f"--pid-file={places.folder}/mariadb.pid", "--user=root", "--performance-schema=off"]
        options += ["--innodb-buffer-pool-size=64M", "--innodb-log-file-size=32M", "--innodb-lock-wait-timeout=900"]
        options += ["--innodb-flush-log-at-trx-commit=0", "--skip-log-bin"]
        self._daemon(["mariadbd", "--no-defaults", *options])
        client = ["mariadb", "--no-defaults", f"--socket={sql}", "--user=root"]
        _wait(lambda: run([*client, "-e", "select 1"], check=False).returncode == 0, "mariadbd")
        grant = f"create database {files.DATABASE}; grant all on {files.DATABASE}.* to slurm@127.0.0.1"
        run([*client, "-e", f"{grant} identified by 'slurm'"])
        self.start_accounts()
        manage = ["sacctmgr", "--immediate", "--quiet", "add"]
        self.call([*manage, "cluster", "bed"])
        self.call([*manage, "account", "bench", "Description=bench"])
        self.call([*manage, "user", "root", "Account=bench"])
        self.call([*manage, "user", OTHER_USER, "Account=bench"])

    def boot_node(self, host: ClusterHost) -> None:
        """Start munged and slurmd on a host that is switched on, also again after host.kill() and bed.boot()."""
        assert self._places is not None
        places = self._places
        conf, key = host.path(files.SLURM_CONF), host.path(MUNGE_KEY)
        for file in (conf, key):
            file.parent.mkdir(parents=True, exist_ok=True)
        conf.write_text(places.conf.read_text())
        key.touch(mode=0o600)
        key.write_bytes((places.folder / "munge.key").read_bytes())
        host.path(str(places.munge.parent)).mkdir(mode=0o755, exist_ok=True)
        host.start_daemon(_munged(places.munge, Path(MUNGE_KEY), Path("/run")), "/var/log/munged.out")
        _wait(lambda: host.path(str(places.munge)).is_socket(), f"munged on {host.name}")
        host.start_daemon(["slurmd", "-D", "-N", host.name, "-f", files.SLURM_CONF], "/var/log/slurmd.out")

    def wait_idle(self, *hosts: ClusterHost) -> None:
        """Wait until these hosts (by default all) take jobs."""
        names = ",".join(host.name for host in hosts or self.hosts)
        shown = ["sinfo", "--noheader", "--Node", f"--nodes={names}", "--format=%t", "--partition=main"]
        _wait(lambda: set(self.call(shown).split()) == {"idle"}, f"{names} idle")

    def allocate(self, nodes: int, *options: str) -> str:
        """The id of a job that holds so many whole nodes and runs nothing."""
        argv = ["salloc", "--no-shell", f"--nodes={nodes}", "--exclusive", *options, "--job-name=held"]
        self.call(argv)
        return self.call(["squeue", "--noheader", "--name=held", "--format=%i"]).split()[-1]

    def submit_as_other(self, name: str) -> str:
        """The id of a job of OTHER_USER with that name, which waits for both nodes or holds them."""
        job = ["sbatch", "--parsable", f"--job-name={name}", "--nodes=2", "--exclusive", "--output=/dev/null"]
        user = ["setpriv", f"--reuid={OTHER_USER}", "--regid=65534", "--clear-groups", "env", "--chdir=/"]
        return self.call([*user, *job, "--chdir=/", "--wrap=sleep 600"], timeout=200).strip()

    def cancel_all(self) -> None:
        """End all jobs, and wait until the hosts take others."""
        for user in ("root", OTHER_USER):
            self.call(["scancel", f"--user={user}"])
        _wait(lambda: not self.call(["squeue", "--noheader"]).strip(), "the end of all jobs")

    def down(self) -> None:
        """End everything of it, without what an end in order would keep."""
        for _, process in self._daemons:
            process.kill()
        for _, process in self._daemons:
            process.wait()
        self._daemons.clear()
        if self._places is not None:
            shutil.rmtree(self._places.munge.parent, ignore_errors=True)
            shutil.rmtree(self._data, ignore_errors=True)
            self._places = None
        self.bed.down()

    def _daemon(self, argv: Sequence[str], **environment: str) -> None:
        """Start a program of the head node in the foreground; the kernel ends it with this process."""
        assert self._places is not None
        program = shutil.which(argv[0], path=GUEST_PATH)
        assert program is not None, argv[0]
        with (self._places.folder / f"{argv[0]}.out").open("wb") as out:
            process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", program, *argv[1:]],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env={**os.environ, "PATH": GUEST_PATH, **environment},
                start_new_session=True,
            )
        self._daemons.append((argv[0], process))

    def _answers(self, argv: Sequence[str]) -> bool:
        for name, process in self._daemons:
            if process.poll() is not None:
                assert self._places is not None
                raise TestBedError(f"{name} ended: {tail(self._places.folder / f'{name}.out')}")
        kept = {**os.environ, **self.environment}
        return run(argv, check=False, env=kept).returncode == 0


def _munged(socket_file: Path, key: Path, folder: Path) -> list[str]:
    kept = [f"--pid-file={folder}/munged.pid", f"--log-file={folder}/munged.log", f"--seed-file={folder}/munged.seed"]
    return ["munged", "--foreground", "--force", f"--socket={socket_file}", f"--key-file={key}", *kept]


def _wait(condition: Callable[[], bool], what: str) -> None:
    wait_until(condition, timeout=START_SECONDS, what=what, pause=0.1)


def _free_ports(count: int) -> list[int]:
    """Ports of this machine on which nothing listens."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]
