"""A cluster to play with on one machine: real hosts, each with its own network, sshd, Docker engine and disk.

    .venv/bin/python -m tests.cluster up 2    # node1 and node2, in seconds; says how to reach them
    .venv/bin/python -m tests.cluster status
    .venv/bin/python -m tests.cluster exec node1 -- docker images
    .venv/bin/python -m tests.cluster down    # processes, namespaces, bridge, mounts: all gone; --purge: images, too

`up` writes into its folder (.cache/cluster) an SSH key, known_hosts, and the two files that run.py reads:

    RUN=".venv/bin/python run_benchmarks/run.py"
    $RUN --cluster-conf .cache/cluster/cluster_conf.py --test-conf .cache/cluster/test_conf.py

The first `up` also makes the base image (debootstrap), the wheelhouse (pip download) and of both the image of the
CPU cases; the first two have a command of their own, as an air-gapped site needs them, too: `base-image` and
`wheelhouse`. The third is `engine`: Docker's folder, of which each host gets a copy. It needs root,
Docker's programs, sshd and iproute2: `tests/cluster/setup.sh` installs them on Debian, `needs` says what is missing.

In a test:

    with TestBed(3, tmp_path, engine=[True, True, False]) as bed:     # node3 has no Docker at all
        bed.hosts[0].exec(["hostname"])                               # past ssh, as root
        bed.hosts[1].link_down()                                      # link_up, drop_head, rejoin_head,
        bed.hosts[1].stop_sshd()                                      # start_sshd, stop_engine, start_engine, kill
        bed.boot(bed.hosts[1])                                        # on again after kill()
        bed.cluster_conf, bed.key_file, bed.known_hosts, bed.ssh_argv(bed.hosts[0], "true")
"""

import argparse
import shlex
import sys

from common.command_line import FunctionVerb, Program, VerbParser, new_path
from tests.cluster import images, seed
from tests.cluster.bed import TestBed, take_down
from tests.cluster.engine import answers
from tests.cluster.needs import missing
from tests.cluster.network import MAX_HOSTS
from tests.cluster.system import TestBedError

DEFAULT_FOLDER = images.CACHE / "cluster"


def _add_folder(parser: VerbParser) -> None:
    parser.add_argument("--dir", type=new_path, metavar="DIR", default=DEFAULT_FOLDER, help="the bed's folder")


def _no_options(_: VerbParser) -> None:
    """Add nothing."""


def _add_up(parser: VerbParser) -> None:
    parser.add_argument("hosts", metavar="N", type=int, choices=range(1, MAX_HOSTS + 1), help="how many hosts")
    parser.add_argument("--no-engine", dest="engine", action="store_false", help="no Docker engine on each host")
    _add_folder(parser)


def _up(arguments: argparse.Namespace) -> int:
    bed = TestBed(arguments.hosts, arguments.dir, engine=arguments.engine, images=arguments.engine, persistent=True)
    bed.up()
    for host in bed.hosts:
        print(f"{host.name}  {host.address}  {shlex.join(bed.ssh_argv(host))}")
    print("files:", *(bed.folder / name for name in ("cluster_conf.py", "test_conf.py", "known_hosts", "id_ed25519")))
    python = sys.executable
    print(f"run:   {python} run_benchmarks/run.py --cluster-conf {bed.cluster_conf} --test-conf {bed.test_conf}")
    print(f"end:   {python} -m tests.cluster down --dir {bed.folder}")
    return 0


def _add_down(parser: VerbParser) -> None:
    parser.add_argument("--purge", action="store_true", help="remove the engines' images, too")
    _add_folder(parser)


def _down(arguments: argparse.Namespace) -> int:
    folder = arguments.dir
    print("down" if take_down(folder, purge=arguments.purge) else f"nothing was up in {folder}")
    return 0


def _status(arguments: argparse.Namespace) -> int:
    bed = TestBed.load(arguments.dir)
    if bed is None:
        print(f"nothing is up in {arguments.dir}")
        return 1
    for host in bed.hosts:
        if host.pid is None:
            state = "off"
        else:
            docker = "no Docker"
            if host.has_engine:
                docker = "Docker answers" if answers(host.docker_socket) else "Docker is down"
            state = f"on, {'sshd answers' if host.sshd_answers() else 'sshd does not answer'}, {docker}"
        print(f"{host.name}  {host.address}  {state}")
    return 0


def _add_exec(parser: VerbParser) -> None:
    _add_folder(parser)
    parser.add_argument("name", metavar="HOST", help="node1, node2, ...")
    parser.add_argument("command", nargs="+", help="the command and its arguments, after --")


def _exec(arguments: argparse.Namespace) -> int:
    name, folder = arguments.name, arguments.dir
    bed = TestBed.load(folder)
    host = next((host for host in bed.hosts if host.name == name), None) if bed is not None else None
    if host is None:
        known = ", ".join(host.name for host in bed.hosts) if bed is not None else "none is up"
        raise TestBedError(f"HOST: {name!r} is no host of {folder}; known: {known}")
    done = host.exec(arguments.command, check=False, timeout=3600)
    sys.stdout.write(done.stdout)
    sys.stderr.write(done.stderr)
    return done.returncode


def _base_image(_: argparse.Namespace) -> int:
    tar = images.base_image_tar()
    print(f"{tar}\nelsewhere: docker import {tar.name} {images.BASE_IMAGE}")
    return 0


def _wheelhouse(_: argparse.Namespace) -> int:
    print(images.make_wheelhouse())
    return 0


def _engine(_: argparse.Namespace) -> int:
    print(seed.make())
    return 0


def _needs(_: argparse.Namespace) -> int:
    lacking = missing()
    print("\n".join(lacking) or "this machine has what a test bed needs")
    return 1 if lacking else 0


UP, DOWN = FunctionVerb(_add_up, _up), FunctionVerb(_add_down, _down)
STATUS, EXEC = FunctionVerb(_add_folder, _status), FunctionVerb(_add_exec, _exec)
BASE_IMAGE, WHEELHOUSE = FunctionVerb(_no_options, _base_image), FunctionVerb(_no_options, _wheelhouse)
ENGINE, NEEDS = FunctionVerb(_no_options, _engine), FunctionVerb(_no_options, _needs)
_HERE = "tests.cluster.__main__"
PROGRAM = Program(
    module="tests.cluster",
    purpose=__doc__,
    verbs={
        "up": (f"{_HERE}:UP", "bring N hosts up and leave them up"),
        "down": (f"{_HERE}:DOWN", "take the hosts down, whatever state they are in"),
        "status": (
            f"{_HERE}:STATUS",
            "say which hosts are up, and whether their sshd and Docker engine answer; exit code 1 if no bed is up",
        ),
        "exec": (f"{_HERE}:EXEC", "run a command on a host, as root and without ssh; exits as the command does"),
        "base-image": (
            f"{_HERE}:BASE_IMAGE",
            "make the base image's tar unless it is there, and say where it is and how to import it",
        ),
        "wheelhouse": (
            f"{_HERE}:WHEELHOUSE",
            "download the workloads' wheels unless they are there, and say where they are; PIP_ARGS are pip's",
        ),
        "engine": (
            f"{_HERE}:ENGINE",
            "build the image of the CPU cases unless it is there, and say where the folder of its engine is",
        ),
        "needs": (f"{_HERE}:NEEDS", "say what this machine lacks for a test bed; exit code 1 if anything"),
    },
    controls_hosts=True,
)


def main() -> int:
    """Run a command; a failure is one line on stderr and exit code 1."""
    try:
        return PROGRAM.main()
    except TestBedError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
