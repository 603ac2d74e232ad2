"""Steps in a container: pyxis is rehearsed by a plugin of Slurm's own interface that takes its options, apptainer by a
program that does.
"""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from run_benchmarks.hosts.slurm.allocation import Allocation
from run_benchmarks.hosts.slurm.host import SlurmHost
from run_benchmarks.hosts.slurm.script import surroundings
from tests.cluster.slurm.cluster import SlurmCluster
from tests.cluster.slurm.controller import SlurmController

pytestmark = [pytest.mark.cluster, pytest.mark.nightly, pytest.mark.timeout(300)]
SOURCE, APPTAINER = Path(__file__).with_name("container.c"), Path(__file__).with_name("apptainer.sh")
IMAGE, MARK, LIBRARY = "/srv/image", "made for a test", "/srv/container.so"
# A root like the host's, but with our folder and /tmp empty, and with an /etc/issue of its own.
PREPARE = f"""
mkdir -p {IMAGE} /root/.clusterdyno && mount --rbind / {IMAGE} && mount --make-rprivate {IMAGE}
mount -t tmpfs none {IMAGE}/root/.clusterdyno && mount -t tmpfs none {IMAGE}/tmp
echo '{MARK}' >/srv/issue && mount --bind /srv/issue {IMAGE}/etc/issue
"""


@pytest.fixture
def with_root(slurm_cluster: SlurmCluster) -> Iterator[SlurmCluster]:
    """The cluster with the prepared root on each node."""
    for host in slurm_cluster.hosts:
        host.exec(["sh", "-ec", PREPARE])
    yield slurm_cluster
    slurm_cluster.cancel_all()
    for host in slurm_cluster.hosts:
        host.exec(["umount", "-R", "-l", IMAGE])


@pytest.fixture
def with_plugin(with_root: SlurmCluster, tmp_path: Path) -> Iterator[SlurmCluster]:
    """The cluster with the plugin."""
    if shutil.which("gcc") is None or not Path("/usr/include/slurm/spank.h").exists():
        pytest.skip("needs gcc and libslurm-dev")
    library = tmp_path / "container.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-Wall", "-o", library, SOURCE], check=True)
    conf = with_root.folder / "slurm" / "plugstack.conf"
    for host in with_root.hosts:
        shutil.copyfile(library, host.path(LIBRARY))
        host.path("/etc/slurm/plugstack.conf").write_text(f"required {LIBRARY}\n")
    conf.write_text(f"required {library}\n")
    yield with_root
    conf.unlink()
    for host in with_root.hosts:
        host.path("/etc/slurm/plugstack.conf").unlink()


def test_a_run_s_steps_are_in_the_container_with_our_folders_alone(
    with_plugin: SlurmCluster, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller = SlurmController(tmp_path, with_plugin, root, allocation=with_plugin.allocate(2))
    controller.configure_cluster(HOSTS="node[1-2]", SLURM_CONTAINER=IMAGE)
    answer = controller.call()
    assert answer.exit_code == 0, answer.output
    assert [node["missing"] for node in answer.round_record("one")["nodes"]] == [[], []]
    monkeypatch.setenv("SLURM_CONF", with_plugin.environment["SLURM_CONF"])
    folders, setup = ["/root/.clusterdyno/ours"], "export SET=up"
    inside = surroundings(folders=folders, setup=setup, pyxis_image=IMAGE, apptainer_image=None)
    host = SlurmHost("node1", Allocation(number=controller.allocation, is_ours=False, surroundings=inside))
    host.connect()
    said = host.run(["sh", "-c", 'cat /etc/issue; ls /root/.clusterdyno; echo "$SET"'], deadline=30).stdout
    assert said.splitlines() == [MARK, "ours", "up"]
    controller.configure_cluster(HOSTS="node[1-2]", SLURM_CONTAINER="/srv/no-image")
    missing = controller.call("check")
    assert missing.exit_code == 3 and "no image /srv/no-image" in missing.output, missing.output


def test_a_run_s_steps_are_in_the_container_of_an_apptainer_that_a_module_would_bring(
    with_root: SlurmCluster, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for host in with_root.hosts:
        program = host.path("/srv/module/apptainer")
        program.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(APPTAINER, program)
        program.chmod(0o755)
        host.path("/srv/image.sif").write_text(IMAGE)
    setup = "export PATH=/srv/module:$PATH SET=up"
    controller = SlurmController(tmp_path, with_root, root, allocation=with_root.allocate(2))
    controller.configure_cluster(HOSTS="node[1-2]", SLURM_SETUP=setup, SLURM_APPTAINER="/srv/image.sif")
    answer = controller.call()
    assert answer.exit_code == 0, answer.output
    assert [node["missing"] for node in answer.round_record("one")["nodes"]] == [[], []]
    monkeypatch.setenv("SLURM_CONF", with_root.environment["SLURM_CONF"])
    folders, image = ["/root/.clusterdyno/ours"], "/srv/image.sif"
    inside = surroundings(
        folders=folders, setup=setup, pyxis_image=None, apptainer_image=image, apptainer_options=["--nv"]
    )
    host_inside = SlurmHost("node1", Allocation(number=controller.allocation, is_ours=False, surroundings=inside))
    host_inside.connect()
    said = host_inside.run(["sh", "-c", 'cat /etc/issue; ls /root/.clusterdyno; echo "$SET"; pwd'], deadline=30).stdout
    assert said.splitlines() == [MARK, "ours", "up", "/"]
    controller.configure_cluster(HOSTS="node[1-2]", SLURM_SETUP=setup, SLURM_APPTAINER="/srv/no.sif")
    missing = controller.call("check")
    assert missing.exit_code == 3 and "could not open image /srv/no.sif" in missing.output, missing.output
