"""A user's container options beside the vendor's: nothing that RDMA needs is lost, the user wins and is told so."""

import pytest

import vendors
from run_benchmarks.plan.resolve import resolve
from run_benchmarks.settings.container_merge import merged
from run_benchmarks.settings.container_options import ContainerOptions, Ulimit, parse_container_options
from tests.run_benchmarks.conftest import TEST, Load

VENDOR = parse_container_options("--gpus all --cap-add IPC_LOCK --ulimit memlock=-1 -e A=1 -v /opt:/opt --ipc host")

NVIDIA = (
    TEST.replace('"process"', '"docker"')
    .replace('"cpu"', '"nvidia"')
    .replace("CPUx1x2", "H100x1x1")
    .replace('"nproc": 2', '"nproc": 1')
)


def test_the_seed_s_own_line_keeps_what_rdma_needs(load: Load) -> None:
    test = NVIDIA
    resolved = resolve(load(f'{test}ACCE_CONTAINER_OPT = " --gpus all"\nIMAGE = "x"\n'), local_python="python3")
    assert resolved.options == parse_container_options(vendors.load("nvidia").container_options)
    assert resolved.options.cap_add == ("IPC_LOCK",)
    assert resolved.options.ulimits == (Ulimit(name="memlock", soft=-1, hard=-1),)
    assert resolved.warnings == ()


def test_without_options_of_a_user_the_vendor_s_are_taken() -> None:
    assert merged(VENDOR, None, "X") == (VENDOR, [])
    assert merged(VENDOR, parse_container_options(""), "X") == (VENDOR, [])


@pytest.mark.parametrize(
    ("user", "expected", "said"),
    [
        ("--gpus 2", {"gpus": "2"}, ["--gpus 2 of X replaces the vendor's all"]),
        ("--gpus all", {}, []),
        ("--ulimit memlock=5:9", {"ulimits": (Ulimit(name="memlock", soft=5, hard=9),)},
         ["--ulimit memlock=5:9 of X replaces the vendor's memlock=-1"]),
        ("--cap-add CAP_IPC_LOCK", {"cap_add": ("CAP_IPC_LOCK",)},
         ["--cap-add CAP_IPC_LOCK of X replaces the vendor's IPC_LOCK"]),
        ("--cap-add SYS_NICE", {"cap_add": ("IPC_LOCK", "SYS_NICE")}, []),
        ("-e A=2 -e B=3", {"environment": {"A": "2", "B": "3"}}, ["-e A of X replaces the vendor's A"]),
        ("-e A=1", {}, []),
        ("-v /mine:/opt:ro", {"volumes": parse_container_options("-v /mine:/opt:ro").volumes},
         ["-v /mine:/opt:ro of X replaces the vendor's /opt:/opt"]),
        ("--privileged=false", {"privileged": False}, []),
        ("--device amd.com/gpu=1:0 --device amd.com/gpu=2:0", {"devices": ("amd.com/gpu=1:0", "amd.com/gpu=2:0")}, []),
        ("--device /dev/b --ipc private", {"devices": ("/dev/b",), "ipc": "private"},
         ["--ipc private of X replaces the vendor's host"]),
    ],
)  # fmt: skip
def test_the_user_wins(user: str, expected: dict[str, object], said: list[str]) -> None:
    options, sentences = merged(VENDOR, parse_container_options(user), "X")
    assert options == VENDOR.model_copy(update=expected)
    assert sentences == said


def test_what_replaces_is_a_warning_of_the_plan(load: Load) -> None:
    test = NVIDIA
    text = f'{test}ACCE_CONTAINER_OPT = "--gpus device=0"\nIMAGE = "x"\n'
    assert resolve(load(text), local_python="python3").warnings == (
        "--gpus device=0 of ACCE_CONTAINER_OPT replaces the vendor's all",
    )
    assert ContainerOptions() == merged(ContainerOptions(), None, "X")[0]
