"""Starts a PostgreSQL of Debian's packages as an unprivileged user: a socket in its own folder, no port."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

USER = "nobody"
OPTIONS = "-c listen_addresses='' -c fsync=off"


def programs() -> Path | None:
    """The folder of initdb and pg_ctl, which Debian keeps out of PATH; None if there is none."""
    return max(Path("/usr/lib/postgresql").glob("*/bin"), default=None)


@contextmanager
def postgres() -> Iterator[str]:
    """A new server; yields the SQLAlchemy URL of its database."""
    found = programs()
    assert found is not None, "no PostgreSQL: tests/cluster/setup.sh installs it"
    user = pwd.getpwnam(USER) if os.geteuid() == 0 else pwd.getpwuid(os.geteuid())
    folder = Path(tempfile.mkdtemp(prefix="pg"))
    os.chown(folder, user.pw_uid, user.pw_gid)

    def call(program: str, *arguments: str) -> None:
        command = [str(found / program), "-D", str(folder / "data"), *arguments]
        who = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []} if os.geteuid() == 0 else {}
        subprocess.run(command, check=True, cwd=folder, stdout=subprocess.DEVNULL, **who)  # type: ignore[call-overload]

    try:
        call("initdb", "-U", "history", "-A", "trust", "-N")
        call("pg_ctl", "-w", "-l", str(folder / "log"), "-o", f"{OPTIONS} -k {folder}", "start")
        try:
            yield f"postgresql+psycopg://history@/postgres?host={folder}"
        finally:
            call("pg_ctl", "-w", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder)
