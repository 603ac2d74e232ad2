"""What the settings name is looked up; what is missing is said at once, what has no effect is said, too."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import vendors
from run_benchmarks.errors import InputProblems
from run_benchmarks.plan.resolve import Resolved, resolve
from run_benchmarks.settings.settings import load_settings
from tests.run_benchmarks.conftest import TEST, Load
from training.benchmarks.network.pytorch.config import Config

SEEDS = Path(__file__).parents[2] / "data" / "seeds"
REMOTE = 'HOSTS = ["node1"]\n'
DOCKER = TEST.replace('"process"', '"docker"')


def resolved(load: Load, *texts: str) -> Resolved:
    return resolve(load(*texts), local_python="/opt/python")


def test_a_case_gets_all_its_name_stands_for(load: Load) -> None:
    (case,) = resolved(load, TEST + 'ONE["overrides"] = {"sizes": "1K", "seed": 7}\n').cases
    assert case.benchmark.entry_module == "training.benchmarks.network"
    assert case.config_file.parts[-5:] == ("vendors", "cpu", "network-pytorch", "config", "config_CPUx1x2.py")
    assert isinstance(case.config, Config)
    assert (case.config.size_list, case.config.seed) == ((1024,), 7)
    assert (case.python, case.image) == ("/opt/python", None)


@pytest.mark.parametrize(
    ("model", "overrides", "packages"),
    [
        ("cpm", {"data": "synthetic"}, ()),
        ("cpm", {}, ("jieba==0.42.1",)),
        ("llama", {}, ()),
        ("llama", {"fp8": "rowwise"}, ("torchao==0.18.0",)),
    ],
)
def test_a_case_wants_the_packages_that_its_settings_use(
    load: Load, model: str, overrides: dict[str, str], packages: tuple[str, ...]
) -> None:
    """Words are cut where text is read: CPM with data made on the fly runs on hosts without jieba."""
    data = (
        {} if overrides.get("data") or model == "llama" else {"data_dir_host": "/data", "data_dir_container": "/data"}
    )
    one = {"model": model, "framework": "pytorch", "config": "config_H100x1x1", "nnodes": 1, "nproc": 1, "repeat": 1}
    more = {"init_checkpoint": None} if model == "cpm" else {}
    one |= data | {"overrides": overrides | more}
    text = 'VENDOR, RUNTIME, CASES = "nvidia", "process", ["ONE"]\n'
    assert resolved(load, f"{text}ONE = {one!r}\n").cases[0].requirement_lines == packages


def test_flagperf_s_example_says_what_there_is_instead() -> None:
    settings = load_settings(SEEDS / "cluster_conf.py.txt", SEEDS / "test_conf.py.txt")
    with pytest.raises(InputProblems) as caught:
        resolve(settings, local_python="python3")
    found = {(problem.key, problem.value) for problem in caught.value.problems}
    assert ("CASES", "GLM_TORCH_DEMO_A100_1X8") in found
    assert ("CASES", "CPM_TORCH_DEMO_A100_1X8") in found
    assert len(found) == 2


def test_everything_that_stands_for_nothing_is_said_at_once(load: Load) -> None:
    test = """
VENDOR = "cpuu"
CASES = ["ONE", "TWO", "THREE", "FUOR"]
FOUR = {"model": "network", "framework": "pytorch", "config": "c", "nproc": 1}
ONE = {"model": "netwrk", "framework": "pytorch", "config": "c", "nproc": 1}
TWO = {"model": "network", "framework": "pytorh", "config": "c", "nproc": 1, "nnodes": 3}
THREE = {"model": "network", "framework": "pytorch", "config": "c", "nproc": 1, "nnodes": 2}
"""
    with pytest.raises(InputProblems) as caught:
        resolved(load, test)
    expected = [
        ("VENDOR", "did you mean 'cpu'?"),
        ("CASES", "no definition in this file; did you mean 'FOUR'?"),
        ("ONE.model:framework", "did you mean 'network'?"),
        ("TWO.nnodes", "at most 1, the number of HOSTS"),
        ("TWO.model:framework", "did you mean 'pytorch'?"),
        ("THREE.nnodes", "at most 1"),
    ]
    assert [problem.key for problem in caught.value.problems] == [key for key, _ in expected]
    for problem, (_, part) in zip(caught.value.problems, expected, strict=True):
        assert part in problem.allowed
        assert problem.file.endswith("test_conf.py")


def test_case_configs_are_checked(load: Load) -> None:
    test = TEST.replace('"ONE"]', '"ONE", "TWO"]').replace("config_CPUx1x2", "config_CPU1x2")
    two = 'TWO = ONE | {"config": "config_CPUx1x2", "overrides": {"itertions": 5, "dtype": "float"}}\n'
    with pytest.raises(InputProblems) as caught:
        resolved(load, test + two)
    text = str(caught.value)
    assert "ONE.config = 'config_CPU1x2': no file config_CPU1x2.py" in text
    assert "did you mean 'config_CPUx1x2'?" in text
    assert "itertions = 5: unknown setting; did you mean 'iterations'?" in text
    assert "dtype = 'float'" in text


def test_what_a_case_s_hosts_and_ranks_cannot_do_is_a_mistake(load: Load) -> None:
    with pytest.raises(InputProblems, match=r"ONE.nnodes x nproc = '1 x \d': pattern 'pairs' needs 2 hosts or more"):
        resolved(load, TEST + 'ONE["overrides"] = {"pattern": "pairs"}\n')


@pytest.mark.parametrize(
    ("test", "cluster", "expected"),
    [
        (TEST, 'HOSTS = ["localhost"]', []),
        (TEST + 'SHM_SIZE = "1G"\nIMAGE = "x"', REMOTE, ["SHM_SIZE", "IMAGE"]),
        (TEST + "PIDS_LIMIT = 500", REMOTE, ["PIDS_LIMIT"]),
        (DOCKER + 'PIDS_LIMIT = 500\nACCE_CONTAINER_OPT = "--pids-limit 7"', REMOTE, ["--pids-limit"]),
        (TEST + 'ACCE_CONTAINER_OPT = "--ipc host"', REMOTE, ["ACCE_CONTAINER_OPT"]),
        (DOCKER + 'IMAGE = "x"\nPIP_SOURCE = "https://x/simple"', REMOTE, ["PIP_SOURCE"]),
        (TEST, 'HOSTS = ["localhost"]\nSSH_PORT = 22', ["SSH_PORT"]),
        (TEST, REMOTE + 'NETWORK_INTERFACE = "eth0"\nSSH_PORT = 22', ["NETWORK_INTERFACE"]),
        (DOCKER + 'SHM_SIZE = "1G"\nACCE_CONTAINER_OPT = "--shm-size 2g"', REMOTE, ["--shm-size"]),
        (DOCKER + 'ACCE_CONTAINER_OPT = "--shm-size 2g --ipc host"', REMOTE, ["the shared memory size"]),
        (DOCKER + 'SHM_SIZE = "1G"\nACCE_CONTAINER_OPT = "--ipc host"', REMOTE, ["the shared memory size"]),
        (DOCKER + 'SHM_SIZE = "1G"\nACCE_CONTAINER_OPT = "--privileged"', REMOTE, ["ACCE_CONTAINER_OPT asks"]),
        (TEST.replace('"pytorch"', '"pytorch_2.0.1"'), REMOTE, ["ONE.framework: the version in 'pytorch_2.0.1'"]),
        (DOCKER, REMOTE, []),
    ],
)
def test_a_setting_without_effect_is_said(test: str, cluster: str, expected: list[str], load: Load) -> None:
    warnings = resolved(load, test, cluster).warnings
    assert len(warnings) == len(expected), warnings
    for warning, start in zip(warnings, expected, strict=True):
        assert warning.startswith(start)


def test_a_version_of_a_framework_needs_an_image_of_its_own(load: Load) -> None:
    versioned = DOCKER.replace('"pytorch"', '"pytorch_2.0.1"')
    with pytest.raises(InputProblems, match="vendor cpu has no image for it; did you mean 'pytorch'"):
        resolved(load, versioned)
    (case,) = resolved(load, versioned + 'IMAGE = "mine:2.0.1"').cases
    assert (case.image, case.python) == (None, "python3")


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ('BASE_IMAGE = "no such:reference:x"', "BASE_IMAGE"),
        ('IMAGE = "nvcr.io/nvidia/pytorch:25.05-py3 "', "IMAGE"),
        ('IMAGE_OPTIONS = {"flash": "1"}', "ONE.framework"),
    ],
)
def test_what_no_image_can_be_made_of_is_a_problem(line: str, key: str, load: Load) -> None:
    with pytest.raises(InputProblems) as caught:
        resolved(load, DOCKER + line)
    assert [problem.key for problem in caught.value.problems] == [key]


BERT = TEST.replace('"network"', '"bert"')


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("ONE['overrides'] = {'backend': 'nccl'}",
         "ONE.overrides.backend = 'nccl': vendor cpu has no such backend; allowed: 'gloo'"),
        ("ONE['overrides'] = {'data': 'files'}",
         "ONE.data_dir_host = None: data = 'files' needs a folder: set it and data_dir_container, or"),
        ("ONE['data_dir_host'] = ONE['data_dir_container'] = '/data'",
         "ONE.data_dir_host = '/data': has no effect with data = 'synthetic'"),
        ("ONE['overrides'] = {'max_seq_length': 100}",
         "ONE.overrides.max_seq_length = 100: max_seq_length = 100; allowed: up to max_position_embeddings = 64"),
        ("ONE['overrides'] = {'max_seq_length': 100, 'max_position_embeddings': 80, 'seed': 1}",
         "ONE.overrides = {'max_seq_length': 100, 'max_position_embeddings': 80, 'seed': 1}: max_seq_length = 100;"),
    ],
)  # fmt: skip
def test_what_would_fail_in_the_round_is_a_mistake_of_the_case(case: str, said: str, load: Load) -> None:
    with pytest.raises(InputProblems) as caught:
        resolved(load, f"{BERT}{case}\n")
    (problem,) = caught.value.problems
    assert f"test_conf.py: {said}" in str(problem)


@pytest.fixture
def abacus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A third vendor: one folder, of which nothing else knows."""
    root = Path(vendors.__file__).parent
    folder = tmp_path / "more" / "abacus"
    (folder / "network-pytorch" / "config").mkdir(parents=True)
    text = (root / "nvidia" / "adapter.py").read_text(encoding="utf-8")
    text = text.replace('name="nvidia"', 'name="abacus"').replace("CUDA_VISIBLE_DEVICES", "ABACUS_VISIBLE")
    (folder / "adapter.py").write_text(text.replace("--gpus all", "--device /dev/abacus"), encoding="utf-8")
    (folder / "network-pytorch" / "config" / "config_A1x1x2.py").write_text('sizes = "1M"\n')
    (folder / "network-pytorch" / "config" / "environment_variables.env").write_text("BEADS=10\n")
    monkeypatch.setattr(vendors, "__path__", [str(root), str(folder.parent)])
    yield folder
    for name in [name for name in sys.modules if name.startswith("vendors.abacus")]:
        del sys.modules[name]


@pytest.mark.usefixtures("abacus")
def test_a_third_vendor_is_one_folder(load: Load) -> None:
    test = TEST.replace('"cpu"', '"abacus"').replace("config_CPUx1x2", "config_A1x1x2")
    found = resolved(load, test)
    assert found.vendor.visible_devices_env == "ABACUS_VISIBLE"
    assert found.options.devices == ("/dev/abacus",)
    assert found.cases[0].environment == {"BEADS": "10"}
    assert isinstance(found.cases[0].config, Config)
    assert found.cases[0].config.sizes == "1M"


def test_a_broken_file_of_a_case_is_named(load: Load, abacus: Path) -> None:
    (abacus / "network-pytorch" / "config" / "environment_variables.env").write_text("BEADS\n")
    (abacus / "network-pytorch" / "requirements.txt").write_text("-e .\n")
    test = TEST.replace('"cpu"', '"abacus"').replace("config_CPUx1x2", "config_A1x1x2")
    with pytest.raises(InputProblems) as caught:
        resolved(load, test)
    text = str(caught.value)
    assert "environment_variables.env, line 1" in text
    assert "requirements.txt, line 1" in text
