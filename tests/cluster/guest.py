"""A guest: a process tree with namespaces of its own, held by a small init; when that dies the kernel ends all of it.

A guest is found again by the command line of its init, which names its folder: no pid file can go stale, and what an
earlier, killed test bed left behind is found the same way.
"""

import os
import select
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.cluster.system import (
    TestBedError,
    all_pids,
    cmdline,
    command_name,
    is_alive,
    kill_and_wait,
    namespace,
    pids_in_namespace,
    run,
)

SCRIPTS = Path(__file__).resolve().parent
START_SECONDS = 20.0
GUEST_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
GUEST_ENVIRONMENT = {"PATH": GUEST_PATH, "HOME": "/root", "LANG": "C.UTF-8"}


class Guest:
    """A folder on disk and, while it is up, the init that holds its namespaces.

    `script` is the init, one of the shell scripts beside this module; it prints its process id once all is set up.
    """

    def __init__(self, folder: Path, script: str) -> None:
        self.folder = folder
        self._init = ["sh", str(SCRIPTS / script), str(folder)]
        self._child: subprocess.Popen[str] | None = None
        self._pid: int | None = None

    @property
    def pid(self) -> int | None:
        """Process id of the init as this process sees it, None while the guest is down."""
        if self._pid is None or cmdline(self._pid)[: len(self._init)] != self._init:
            self._pid = next((pid for pid in all_pids() if cmdline(pid)[: len(self._init)] == self._init), None)
        return self._pid

    def start(self, launcher: Sequence[str], arguments: Sequence[str]) -> None:
        """Start the init through `launcher` (nsenter, unshare, ...) and wait until it has set the guest up.

        Raises:
            TestBedError: a guest of this folder runs already, or the init failed; its output is in the message.
        """
        if self.pid is not None:
            raise TestBedError(f"{self.folder}: runs already as process {self.pid}")
        log = self.folder / "init.log"
        with log.open("w") as stderr:
            self._child = subprocess.Popen(
                [*launcher, *self._init, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                env=GUEST_ENVIRONMENT,
                start_new_session=True,
            )
        assert self._child.stdout is not None
        with self._child.stdout as stdout:
            ready, _, _ = select.select([stdout], [], [], START_SECONDS)
            line = stdout.readline() if ready else ""
        if not line.strip().isdecimal():
            self.kill()
            raise TestBedError(f"{self.folder}: its init did not come up: {log.read_text().strip() or 'no output'}")
        self._pid = int(line)

    def exec(
        self,
        argv: Sequence[str],
        *,
        timeout: float = 30.0,
        check: bool = True,
        text_input: str | None = None,
        env: dict[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command inside, as root, in "/"; after `timeout` seconds it is killed inside as well.

        Raises:
            TestBedError: the guest is down, the deadline passed, or (with `check`) the exit code is not 0.
        """
        bounded = ["timeout", "--signal=KILL", f"{timeout:g}", *argv]
        environment = GUEST_ENVIRONMENT | (env or {})
        begin = time.monotonic()
        done = run(
            [*self.entering(), *bounded], timeout=timeout + 5, check=False, text_input=text_input, env=environment
        )
        if done.returncode in (-signal.SIGKILL, 128 + signal.SIGKILL) and time.monotonic() - begin >= timeout:
            raise TestBedError(f"{self.folder.name}: {shlex.join(argv)}: no end within {timeout:g} s")
        if check and done.returncode != 0:
            printed = (done.stderr.strip() or done.stdout.strip() or "no output")[-2000:]
            raise TestBedError(f"{self.folder.name}: {shlex.join(argv)}: exit code {done.returncode}: {printed}")
        return done

    def entering(self) -> list[str]:
        """Words that run the command after them inside, as root, in "/", with the environment of the caller.

        Raises:
            TestBedError: the guest is down.
        """
        return ["nsenter", f"--target={self._require()}", "--mount", "--uts", "--ipc", "--net", "--pid", "--"]

    def start_daemon(self, argv: Sequence[str], log: str) -> Callable[[], bool]:
        """Start a command inside as a child of the init, its output appended to the guest's file `log`.

        Returns a function that says whether it still runs.
        """
        launch = 'setsid "$@" >>"$0" 2>&1 </dev/null & echo $!'
        inside = self.exec(["sh", "-c", launch, log, *argv]).stdout.strip()
        return self.path(f"/proc/{inside}").exists

    def path(self, inside: str) -> Path:
        """The guest's absolute path `inside`, as this process can open it (for a socket, too: it stays short)."""
        return Path(f"/proc/{self._require()}/root") / inside.lstrip("/")

    def pids(self, *names: str) -> list[int]:
        """Its processes of these names (containers' excepted: they are namespaces of their own)."""
        pid = self.pid
        inode = namespace(pid, "pid") if pid is not None else None
        found = pids_in_namespace("pid", inode) if inode is not None else []
        return [pid for pid in found if command_name(pid) in names and is_alive(pid)]

    def kill(self) -> None:
        """End everything in it at once, as a power cut does; nothing to do when it is down."""
        pid = self.pid
        if pid is not None:
            kill_and_wait([pid])
        launchers = [pid for pid in all_pids() if self._is_launcher(pid)]
        if self._child is None:
            kill_and_wait(launchers)
        else:
            self._child.kill()
            self._child.wait()
            self._child = None
        self._pid = None

    def _is_launcher(self, pid: int) -> bool:
        words = cmdline(pid)
        return len(words) > len(self._init) and any(
            words[start : start + len(self._init)] == self._init for start in range(1, len(words))
        )

    def _require(self) -> int:
        pid = self.pid
        if pid is None or not is_alive(pid):
            raise TestBedError(f"{self.folder}: is down")
        return pid


def tail(path: Path, limit: int = 2000) -> str:
    """The end of a log file, for an error message; says so when there is none."""
    try:
        with path.open("rb") as stream:
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - limit))
            return stream.read().decode(errors="replace").strip() or "(empty)"
    except OSError as error:
        return f"({error})"
