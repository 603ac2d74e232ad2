"""What a test bed needs of a machine, and what to do about what it lacks."""

import os
import shutil
import sys

from tests.cluster.system import run

PROGRAMS = {
    "dockerd": "docker.io",
    "docker": "docker.io",
    "containerd": "containerd",
    "sshd": "openssh-server",
    "ssh": "openssh-client",
    "ip": "iproute2",
    "nsenter": "util-linux",
    "unshare": "util-linux",
    "pivot_root": "util-linux",
}


def missing() -> list[str]:
    """What this machine lacks for a test bed, one sentence each; empty if nothing."""
    if not sys.platform.startswith("linux"):
        return [f"Linux (this is {sys.platform})"]
    if os.geteuid() != 0:
        return ["root, for network namespaces and Docker engines (sudo make test)"]
    search = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin", "/usr/local/sbin"])
    absent = {name: package for name, package in PROGRAMS.items() if shutil.which(name, path=search) is None}
    if absent:
        packages = " ".join(sorted(set(absent.values())))
        return [f"the programs {', '.join(absent)} (apt-get install {packages})"]
    if run(["unshare", "--mount", "--net", "--pid", "--fork", "true"], check=False).returncode != 0:
        return ["the right to make namespaces (CAP_SYS_ADMIN; a container has it not)"]
    return []
