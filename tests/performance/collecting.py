"""Collecting a large rank log from a host behind sshd, with its secrets masked: time, and the controller's peak memory.

The controller is a process of its own. Beside it OpenSSH brings the same bytes over the same sshd, and checks and masks
nothing.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.performance.peak import MEGABYTE, run_measured
from tests.performance.rows import Row
from tests.run_benchmarks.hosts.sshd import ADDRESS, SshServer

REPOSITORY = Path(__file__).resolve().parents[2]
BYTES, SMOKE_BYTES = 1_000_000_000, 4_000_000
GOAL_MEGABYTES = 150.0
GOAL_RATIO = 3.0
SECRET = "hf_0123456789abcdef"
LINE = (
    '[PerfLog] {"event": "STEP_END", "value": {"step": 17, "total_steps": 100000, "loss": 2.34567},'
    ' "metadata": {"file": "/workspace/clusterdyno/training/benchmarks/trainer/loop.py", "lineno": 58,'
    ' "time_ms": 1795226902319, "rank": 0}}\n'
)
# Arguments: port, key, known_hosts, source, destination, secret, whether to collect at all.
CONTROLLER = """
import getpass, sys
from os import times
from pathlib import Path
from run_benchmarks.hosts.ssh import Endpoint, SshHost
from run_benchmarks.hosts.transfer import pull
from run_benchmarks.rounds.masked_files import mask_files
port, key, known_hosts, source, destination, secret, collects = sys.argv[1:]
host = SshHost(Endpoint(host="127.0.0.1", port=int(port), user=getpass.getuser(), key=Path(key),
                        known_hosts=Path(known_hosts)))
host.connect()
if collects == "yes":
    pulled = pull(host, source, Path(destination), deadline=600, warn=print)
    masked = mask_files(Path(destination), [secret])
    assert len(pulled.files) == len(masked) == 1, (pulled, masked)
host.close()
print("CPU s:", sum(times()[:4]))
"""


def measure(*, smoke: bool = False) -> list[Row]:
    """One row: collecting, beside ssh with cat."""
    size = SMOKE_BYTES if smoke else BYTES
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "sshd").mkdir()
        source = folder / "there"
        source.mkdir()
        _write_log(source / "rank0.out.log", size)
        server = SshServer(folder / "sshd")
        server.start()
        try:
            plain = _cat(server, source / "rank0.out.log", folder / "plain")
            before = _collect(server, source, folder / "none", collects=False)
            seconds, megabytes, cpu_s = _collect(server, source, folder / "here", collects=True)
        finally:
            server.stop()
        kept = (folder / "here" / "rank0.out.log").stat().st_size
        if kept < size * 0.99:
            raise RuntimeError(f"only {kept} of {size} bytes came")
    return [
        Row(
            what=f"collect a rank log of {size / 1e9:g} GB over ssh: checked, with a secret masked",
            measured=f"{seconds - before[0]:.1f} s, {cpu_s - before[2]:.1f} of CPU; peak {megabytes:.0f} MB",
            baseline=f"{plain:.1f} s: ssh cat; {before[1]:.0f} MB without collecting",
            ratio=(seconds - before[0]) / plain,
            goal=f"peak under {GOAL_MEGABYTES:g} MB, at most {GOAL_RATIO:g} times ssh cat",
            met=megabytes < GOAL_MEGABYTES and seconds - before[0] <= GOAL_RATIO * plain,
        )
    ]


def _write_log(path: Path, size: int) -> None:
    """A log of ordinary lines, and a secret in the last one, so that the whole file is looked through and replaced."""
    lines = (LINE * (int(MEGABYTE) // len(LINE))).encode()
    with path.open("wb") as file:
        while file.tell() < size:
            file.write(lines)
        file.write(f"HF_TOKEN={SECRET}\n".encode())


def _cat(server: SshServer, source: Path, destination: Path) -> float:
    options = {"UserKnownHostsFile": server.known_hosts, "IdentityFile": server.client_key, "BatchMode": "yes"}
    words = [word for key, value in options.items() for word in ("-o", f"{key}={value}")]
    started = time.monotonic()
    with destination.open("wb") as file:
        subprocess.run(["ssh", *words, "-p", str(server.port), ADDRESS, "cat", str(source)], stdout=file, check=True)
    seconds = time.monotonic() - started
    destination.unlink()
    return seconds


def _collect(server: SshServer, source: Path, destination: Path, *, collects: bool) -> tuple[float, float, float]:
    """Seconds, peak megabytes and CPU seconds, with its children's, of a controller that logs in and may collect."""
    words = [server.port, server.client_key, server.known_hosts, source, destination, SECRET, "yes" if collects else ""]
    argv = [sys.executable, "-c", CONTROLLER, *map(str, words)]
    seconds, megabytes, exit_code, output = run_measured(argv, REPOSITORY)
    if exit_code != 0:
        raise RuntimeError(f"the collection ended with {exit_code}: {json.dumps(output[-1000:])}")
    return seconds, megabytes, float(output.split()[-1])
