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

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from tests.cluster import images, seed
from tests.cluster.bed import TestBed, take_down
from tests.cluster.engine import answers
from tests.cluster.needs import missing
from tests.cluster.network import MAX_HOSTS
from tests.cluster.system import TestBedError

DEFAULT_FOLDER = images.CACHE / "cluster"

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help=__doc__, rich_markup_mode=None, pretty_exceptions_enable=False
)
Folder = Annotated[Path, typer.Option("--dir", help="the bed's folder", file_okay=False)]


@app.command()
def up(
    hosts: Annotated[int, typer.Argument(metavar="N", help="how many hosts", min=1, max=MAX_HOSTS)],
    folder: Folder = DEFAULT_FOLDER,
    engine: Annotated[bool, typer.Option(help="a Docker engine on each host")] = True,
) -> None:
    """Bring N hosts up and leave them up."""
    bed = TestBed(hosts, folder, engine=engine, images=engine, persistent=True)
    bed.up()
    for host in bed.hosts:
        print(f"{host.name}  {host.address}  {shlex.join(bed.ssh_argv(host))}")
    print("files:", *(bed.folder / name for name in ("cluster_conf.py", "test_conf.py", "known_hosts", "id_ed25519")))
    python = sys.executable
    print(f"run:   {python} run_benchmarks/run.py --cluster-conf {bed.cluster_conf} --test-conf {bed.test_conf}")
    print(f"end:   {python} -m tests.cluster down --dir {bed.folder}")


@app.command()
def down(
    folder: Folder = DEFAULT_FOLDER,
    purge: Annotated[bool, typer.Option("--purge", help="remove the engines' images, too")] = False,
) -> None:
    """Take the hosts down, whatever state they are in."""
    print("down" if take_down(folder, purge=purge) else f"nothing was up in {folder}")


@app.command()
def status(folder: Folder = DEFAULT_FOLDER) -> None:
    """Say which hosts are up, and whether their sshd and Docker engine answer; exit code 1 if no bed is up."""
    bed = TestBed.load(folder)
    if bed is None:
        print(f"nothing is up in {folder}")
        raise typer.Exit(1)
    for host in bed.hosts:
        if host.pid is None:
            state = "off"
        else:
            docker = (
                ("Docker answers" if answers(host.docker_socket) else "Docker is down")
                if host.has_engine
                else "no Docker"
            )
            state = f"on, {'sshd answers' if host.sshd_answers() else 'sshd does not answer'}, {docker}"
        print(f"{host.name}  {host.address}  {state}")


@app.command(name="exec")
def execute(
    name: Annotated[str, typer.Argument(metavar="HOST", help="node1, node2, ...")],
    command: Annotated[list[str], typer.Argument(help="the command and its arguments, after --")],
    folder: Folder = DEFAULT_FOLDER,
) -> None:
    """Run a command on a host, as root and without ssh; exits as the command does."""
    bed = TestBed.load(folder)
    host = next((host for host in bed.hosts if host.name == name), None) if bed is not None else None
    if host is None:
        known = ", ".join(host.name for host in bed.hosts) if bed is not None else "none is up"
        raise TestBedError(f"HOST: {name!r} is no host of {folder}; known: {known}")
    done = host.exec(command, check=False, timeout=3600)
    sys.stdout.write(done.stdout)
    sys.stderr.write(done.stderr)
    raise typer.Exit(done.returncode)


@app.command(name="base-image")
def base_image() -> None:
    """Make the base image's tar unless it is there, and say where it is and how to import it."""
    tar = images.base_image_tar()
    print(f"{tar}\nelsewhere: docker import {tar.name} {images.BASE_IMAGE}")


@app.command()
def wheelhouse() -> None:
    """Download the workloads' wheels unless they are there, and say where they are; PIP_ARGS are pip's arguments."""
    print(images.make_wheelhouse())


@app.command()
def engine() -> None:
    """Build the image of the CPU cases unless it is there, and say where the folder of the engine is that holds it."""
    print(seed.make())


@app.command()
def needs() -> None:
    """Say what this machine lacks for a test bed; exit code 1 if anything."""
    lacking = missing()
    print("\n".join(lacking) or "this machine has what a test bed needs")
    raise typer.Exit(1 if lacking else 0)


def main() -> int:
    """Run a command; a failure is one line on stderr and exit code 1."""
    try:
        app()
    except TestBedError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
