"""HOSTS and RUNTIME as LAUNCHER asks for them; what does not fit is said with what does."""

import pytest

from run_benchmarks.errors import InputProblems
from run_benchmarks.plan.without_effect import without_effect
from run_benchmarks.settings.host_access import way_in
from run_benchmarks.settings.host_selection import selected
from run_benchmarks.settings.launcher_names import hosts_of_slurm
from tests.run_benchmarks.conftest import TEST, Load

PROCESS = f"{TEST}RUNTIME = 'process'\n"
SLURM_TEST = f"{TEST}RUNTIME = 'slurm'\n"
SLURM = "LAUNCHER = 'slurm'\nHOSTS = 'gpu[1-2]'\n"


@pytest.mark.parametrize(
    ("written", "names"),
    [
        ("gpu[01-02],login1", ("gpu01", "gpu02", "login1")),
        (["gpu1", "gpu[3-4]"], ("gpu1", "gpu3", "gpu4")),
        (2, ("<node 1>", "<node 2>")),
    ],
)
def test_hosts_are_a_hostlist_a_list_of_them_or_how_many(written: object, names: tuple[str, ...]) -> None:
    assert hosts_of_slurm(written) == names


@pytest.mark.parametrize("written", [0, True, None, [], [1], "gpu[1-"])
def test_hosts_of_another_form_are_refused(written: object) -> None:
    with pytest.raises(ValueError, match=r"expected a hostlist|is no list of hosts"):
        hosts_of_slurm(written)


def test_settings_of_the_other_launcher_are_said_to_have_no_effect(load: Load) -> None:
    other = load(PROCESS, "HOSTS = ['a']\nSLURM_PARTITION = 'main'\nALLOCATION = 'case'\n")
    for key in ("SLURM_PARTITION", "ALLOCATION"):
        assert f"{key} has no effect with LAUNCHER 'ssh'" in without_effect(other)
    own = load(SLURM_TEST, f"{SLURM}SSH_USER = 'x'\n")
    assert "SSH_USER has no effect: Slurm's nodes are reached without ssh" in without_effect(own)
    assert way_in("gpu1", own.cluster).command == "srun --nodelist=gpu1 true"


@pytest.mark.parametrize(
    ("test", "cluster", "said"),
    [
        (PROCESS, SLURM, "RUNTIME = 'process': expected 'slurm', since LAUNCHER in cluster_conf.py is 'slurm'"),
        (SLURM_TEST, "HOSTS = ['a']\n", "RUNTIME = 'slurm': expected 'docker' or 'process'"),
        (SLURM_TEST, f"{SLURM}SLURM_CONTAINER = 'image.sqsh'\n", "a file by a path that begins with '/' or './'"),
        (SLURM_TEST, f"{SLURM}SLURM_CONTAINER = '/a'\nSLURM_APPTAINER = '/b'\n", "either SLURM_CONTAINER or this"),
        (SLURM_TEST, f"{SLURM}SLURM_OPTIONS = ['-N2']\n", "one option of sbatch in its long form"),
        (SLURM_TEST, f"{SLURM}SLURM_OPTIONS = ['--no-bell', '--no-kill']\n", "wrap, wait, test-only, no-kill"),
        (SLURM_TEST, f"{SLURM}SLURM_OPTIONS = ['--array=0-3']\n", "none of nodes, nodelist, job-name, array"),
        (SLURM_TEST, f"{SLURM}SLURM_PARTITION = 'a b'\n", "a word without quotes"),
        (SLURM_TEST, f"{SLURM}ALLOCATION = 'case'\nSLURM_DETACH = True\n", "False with ALLOCATION 'case'"),
        (f"{SLURM_TEST}MAX_PARALLEL_CASES = 2\n", f"{SLURM}ALLOCATION = 'case'\n", "since ALLOCATION in cluster_conf"),
    ],
)
def test_a_mistake_names_what_is_allowed(test: str, cluster: str, said: str, load: Load) -> None:
    with pytest.raises(InputProblems) as caught:
        load(test, cluster)
    assert said in " ".join(str(caught.value).split())


def test_options_of_sbatch_that_change_no_job_s_kind_are_taken(load: Load) -> None:
    options = ("--mem=64G", "--wait-all-nodes=1", "--comment=a b", "--requeue", "--nodefile=x")
    assert load(SLURM_TEST, f"{SLURM}SLURM_OPTIONS = {options!r}\n").cluster.sbatch_options[-5:] == options


def test_a_run_of_unnamed_hosts_takes_those_that_it_began_with(load: Load) -> None:
    settings = load(SLURM_TEST, "LAUNCHER = 'slurm'\nHOSTS = 2\n")
    assert settings.cluster.are_unnamed and not selected(settings, ["n1", "n7"]).cluster.are_unnamed
    assert selected(settings, ["n1", "n7"]).cluster.HOSTS == ("n1", "n7")
