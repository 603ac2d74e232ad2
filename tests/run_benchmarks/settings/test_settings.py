"""The two files a user edits: FlagPerf's own examples load, every mistake is named."""

import re
from pathlib import Path

import pytest

from run_benchmarks.console.command_line import ROOT
from run_benchmarks.errors import InputProblems, Problem
from run_benchmarks.hosts.incoming.limits import CollectLimits
from run_benchmarks.runtimes.base import MAX_OUTPUT_BYTES
from run_benchmarks.settings.case import parse_case_key
from run_benchmarks.settings.settings import load_settings
from tests.run_benchmarks.conftest import CLUSTER, TEST, Load

SEEDS = Path(__file__).parents[2] / "data" / "seeds"


def problems(load: Load, test: str = TEST, cluster: str = CLUSTER) -> dict[str, Problem]:
    """Every mistake by its key."""
    with pytest.raises(InputProblems) as caught:
        load(test, cluster)
    assert len({problem.key for problem in caught.value.problems}) == len(caught.value.problems)
    return {problem.key: problem for problem in caught.value.problems}


def test_flagperf_s_examples_load_unchanged() -> None:
    settings = load_settings(SEEDS / "cluster_conf.py.txt", SEEDS / "test_conf.py.txt")
    assert settings.cluster.HOSTS == ("10.1.2.3", "10.1.2.4", "10.1.2.5", "10.1.2.6")
    assert settings.cluster.SSH_PORT == 22
    test = settings.test
    assert (test.VENDOR, test.RUNTIME, test.TEST_TYPE) == ("nvidia", "docker", "default")
    assert test.ACCE_CONTAINER_OPT is not None
    assert test.ACCE_CONTAINER_OPT.gpus == "all"
    assert test.ACCE_VISIBLE_DEVICE_ENV_NAME == "CUDA_VISIBLE_DEVICES"
    assert test.PIP_SOURCE == "https://mirrors.aliyun.com/pypi/simple"
    assert test.FLAGPERF_LOG_PATH_HOST == "/home/flagperf/training/result"
    assert test.FLAGPERF_LOG_PATH_CONTAINER == "/workspace/flagperf/training/result"
    assert (test.FLAGPERF_LOG_LEVEL, test.SHM_SIZE, test.CLEAR_CACHES) == ("debug", 32 << 30, True)
    case = settings.cases["BERT_PADDLE_DEMO_A100_1X8"]
    assert (case.model, case.framework, case.config) == ("bert", "paddle", "config_A100x1x8")
    assert (case.repeat, case.nnodes, case.nproc) == (1, 1, 8)
    assert case.data_dir_host == "/home/datasets_ckpt/bert/train/"
    assert case.data_dir_container == "/mnt/data/bert/train/"
    assert settings.undefined_cases == ("GLM_TORCH_DEMO_A100_1X8", "CPM_TORCH_DEMO_A100_1X8")


def test_the_shipped_files_load() -> None:
    config = ROOT / "run_benchmarks" / "config"
    settings = load_settings(config / "cluster_conf.py", config / "test_conf.py")
    assert settings.cluster.HOSTS == ("localhost",)
    assert (settings.test.VENDOR, settings.test.RUNTIME) == ("cpu", "process")
    assert settings.undefined_cases == ()


def test_flagperf_s_newer_form_of_cases(load: Load) -> None:
    settings = load(
        'VENDOR = "nvidia"\nCASES = {"bert:pytorch_1.8:A100:2:8:3": "/raid/bert", "network:pytorch:H100:1:8:1": ""}'
    )
    assert settings.test.CASES == ("bert:pytorch_1.8:A100:2:8:3", "network:pytorch:H100:1:8:1")
    bert, network = settings.cases.values()
    assert (bert.model, bert.framework, bert.config) == ("bert", "pytorch_1.8", "config_A100x2x8")
    assert (bert.nnodes, bert.nproc, bert.repeat) == (2, 8, 3)
    assert bert.data_dir_host == bert.data_dir_container == "/raid/bert"
    assert network.data_dir_host is None
    assert network.data_dir_container is None


@pytest.mark.parametrize(
    ("key", "path", "message"),
    [
        ("bert:pytorch:A100:1:8", "", "a key of 6 parts, model:framework:hardware:nnodes:nproc:repeat; this has 5"),
        ("a:b:c:one:8:1", "", "nnodes is a number of at least 1, not 'one'"),
        ("a:b:c:1:0:1", "", "nproc is a number of at least 1, not '0'"),
        ("a:b:c:1:1:-2", "", "repeat is a number of at least 1, not '-2'"),
        ("a:b:c:1:1:1", 7, "a data path (text, '' for none), not 7"),
        (f"a:b:c:{'9' * 5000}:1:1", "", f"nnodes is a number of at least 1, not '{'9' * 40}'"),
    ],
)
def test_bad_case_keys_are_named(key: str, path: object, message: str, load: Load) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        parse_case_key(key, path)
    found = problems(load, f'VENDOR = "cpu"\nCASES = {{{key!r}: {path!r}}}')
    assert found["CASES"].value == key


def test_every_mistake_of_both_files_is_told_at_once(load: Load, tmp_path: Path) -> None:
    test = """
VENDOR = 5
RUNTIM = "docker"
RUNTIME = "podman"
SHM_SIZE = "lots"
ACCE_CONTAINER_OPT = "--gpu all"
CLEAR_CACHES = "maybe"
TIME_LIMIT = float("inf")
MONITOR_INTERVAL = 0
FLAGPERF_PATH_HOST = "relative"
FLAGPERF_LOG_LEVEL = "loud"
PIP_SOURCE = "ftp://x"
WHEELHOUSE = "/nowhere/at/all"
CASES = ["ONE", "ONE", "a/b"]
ONE = {"modle": "network", "framework": "pytorch", "config": "x y", "nproc": 0, "repeat": True,
       "overrides": {"a": float("nan")}}
"""
    found = problems(
        load, test, 'HOSTS = ["node1", "node1", "-x"]\nSSH_PRT = 22\nSSH_PORT = 70000\nSSH_KEY = "/no/key"\n'
    )
    expected = {
        "HOSTS": "'-x' is neither a host name nor an IP address",
        "SSH_PRT": "unknown key (a name of your own begins with an underscore: _SSH_PRT)",
        "SSH_PORT": "a whole number from 1 to 65535",
        "SSH_KEY": "there is none at /no/key",
        "VENDOR": "expected text (a folder of vendors/",
        "RUNTIM": "unknown key",
        "RUNTIME": "one of 'docker', 'process'",
        "SHM_SIZE": "a size such as 4096",
        "ACCE_CONTAINER_OPT": "unknown container option '--gpu'; did you mean '--gpus'?",
        "CLEAR_CACHES": "True or False",
        "TIME_LIMIT": "a number above 0",
        "MONITOR_INTERVAL": "a number from 0.1 to 60",
        "FLAGPERF_PATH_HOST": "an absolute path",
        "FLAGPERF_LOG_LEVEL": "one of 'debug', 'info', 'warning', 'error'",
        "PIP_SOURCE": "an address such as",
        "WHEELHOUSE": "a folder with wheels",
        "CASES[1]": "each case once",
        "CASES[2]": "a case's name",
        "ONE.modle": "unknown key",
        "ONE.model": "required: a name of lower-case letters, digits and '_' (a model of training/benchmarks/)",
        "ONE.config": "a file's name without folder and '.py'",
        "ONE.nproc": "a whole number from 1 to 1024",
        "ONE.repeat": "a number, not True or False",
        "ONE.overrides": "JSON",
    }
    assert found.keys() == expected.keys()
    for key, part in expected.items():
        assert part in found[key].allowed, key
        file = "cluster_conf.py" if key in ("HOSTS", "SSH_PRT", "SSH_PORT", "SSH_KEY") else "test_conf.py"
        assert found[key].file == str(tmp_path / file)
    assert str(found["SSH_PORT"]).startswith(f"{tmp_path}/cluster_conf.py: SSH_PORT = 70000: ")


@pytest.mark.parametrize(
    ("hosts", "message"),
    [
        ("[]", "a list of 1 or more"),
        ('"node1"', "expected a list"),
        ("[1]", "1 is neither text nor a dict"),
        ('["localhost", "node1"]', "'localhost' means nothing to the other hosts"),
        ('["a", "b", "a"]', "a stands there more than once"),
        ('["node1\\n"]', "neither a host name nor an IP address"),
        ('["no de"]', "neither a host name"),
        ('["10.0.0.300"]', "'10.0.0.300' is neither a host name nor an IP address"),
        ('["user@10.0.0.1.2:22"]', "neither a host name nor an IP address"),
        ('["us er@node"]', "'us er' is no user's name"),
        ('["@node"]', "'' is no user's name"),
        ('["node:0"]', "port 0 is not within 1 to 65535"),
        ('["node:70000"]', "port 70000 is not within 1 to 65535"),
        ('["node:"]', "neither a host name"),
        ('["fe80::1]:22"]', "neither a host name"),
        ('["no de", "ok", "a:b"]', "; 'a:b' is neither"),
        ('[{"port": 22}]', "neither a host name"),
        ('[{"host": "a", "prot": 22}]', "(known: host, user, port, key)"),
        ('[{"host": "a", "port": "22"}]', " is no int"),
        ('[{"host": "a", "port": True}]', " is no int"),
        ('[{"host": "a", "port": 0}]', "port 0 is not within"),
        ('[{"host": "b@a", "user": "c"}]', "has its user or port twice"),
        ('[{"host": "a", "key": "/none/there"}]', "a private key file; there is none at /none/there"),
        ('["root@a:22", "a"]', "a stands there more than once"),
        ('["$(id)"]', "neither a host name"),
        ('[""]', "neither a host name"),
    ],
)
def test_hosts_that_are_none(hosts: str, message: str, load: Load) -> None:
    (problem,) = problems(load, TEST, f"HOSTS = {hosts}").values()
    assert message in problem.allowed


@pytest.mark.parametrize(
    "host", ["node-1", "node1.example.org", "10.1.2.3", "::1", "fe80::1%eth0", "under_score", "N1"]
)
def test_hosts_that_are_some(host: str, load: Load) -> None:
    hosts = load(TEST, f"HOSTS = [{host!r}]").cluster.HOSTS
    assert hosts == (host,)


@pytest.mark.parametrize(
    ("lines", "key", "message"),
    [
        ('ONE["nproc"] = "two"', "ONE.nproc", "a whole number from 1 to 1024"),
        ('ONE["nproc"] = 2.5', "ONE.nproc", "a whole number from 1 to 1024"),
        ('ONE["data_dir_host"] = "data"', "ONE.data_dir_host", "an absolute path"),
        ('ONE["data_dir_host"] = "/data"', "ONE", "set together or not at all"),
        ('ONE["time_limit"] = 0', "ONE.time_limit", "a number above 0"),
        ("del ONE['model']", "ONE.model", "required"),
        ("ONE = {}", "ONE.model", "required"),
        ("CASES = []", "CASES", "expected a list of case names"),
        ("CASES = 'ONE'", "CASES", "expected a list"),
        ("CASES = [['ONE']]", "CASES[0]", "expected text"),
        ("CASES = ['ONE\\n']", "CASES[0]", "a case's name"),
        ("del VENDOR", "VENDOR", "required: text (a folder of vendors/"),
        ("TWO = 2", "TWO", "unknown key"),
        ("PORT = {}", "PORT", "unknown key"),
        ("FLAGPERF_PATH_CONTAINER = '/'", "FLAGPERF_PATH_CONTAINER", "absolute path"),
        ("FLAGPERF_LOG_PATH_HOST = '/a/../b'", "FLAGPERF_LOG_PATH_HOST", "without '..'"),
        ("FLAGPERF_LOG_PATH_CONTAINER = '/workspace'", "", "would hide FLAGPERF_PATH_CONTAINER"),
        ("ACCE_VISIBLE_DEVICE_ENV_NAME = 'A B'", "ACCE_VISIBLE_DEVICE_ENV_NAME", "the name of an environment variable"),
        ("TEST_TYPE = 'customized'", "TEST_TYPE", "'default'"),
    ],
)
def test_one_mistake_is_one_problem(lines: str, key: str, message: str, load: Load) -> None:
    found = problems(load, TEST + lines)
    assert message in found[key].allowed
    assert len(found) == 1 or lines == "ONE = {}"


def test_files_that_cannot_be_read_are_both_named(load: Load, tmp_path: Path) -> None:
    (tmp_path / "test_conf.py").write_text("VENDOR = 'cpu'\nCASES = [undefined]\n")
    with pytest.raises(InputProblems) as caught:
        load_settings(tmp_path / "clster_conf.py", tmp_path / "test_conf.py")
    missing, broken = map(str, caught.value.problems)
    assert "clster_conf.py" in missing
    assert "line 2: NameError" in broken


@pytest.mark.parametrize(
    "text", ["HOSTS = [\n", "raise SystemExit(3)\n", "import sys; sys.exit()\n", "HOSTS = 1 / 0\n"]
)
def test_code_that_fails_is_a_problem_with_its_line(text: str, load: Load) -> None:
    (problem,) = problems(load, TEST, text).values()
    assert "line 1" in str(problem)


def test_helpers_of_a_file_are_no_settings(load: Load) -> None:
    settings = load("import os\n_base = '/data'\ndef _f(): pass\n" + TEST + "FLAGPERF_PATH_HOST = _base + '/x/'\n")
    assert settings.test.FLAGPERF_PATH_HOST == "/data/x"


def test_a_defined_case_that_is_not_listed_is_checked_and_not_run(load: Load) -> None:
    other = 'OTHER = {"model": "network", "framework": "pytorch", "config": "c", "nproc": 1}\n'
    assert list(load(TEST + other).cases) == ["ONE"]
    assert problems(load, TEST + other + 'OTHER["nproc"] = 0').keys() == {"OTHER.nproc"}


def test_a_user_without_a_name_may_still_run(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container started with a bare uid."""

    def fail() -> str:
        raise KeyError("getpwuid(): uid not found: 1234")

    monkeypatch.setattr("getpass.getuser", fail)
    assert load().cluster.SSH_USER.startswith("uid")


def test_what_a_node_may_send_is_bounded_by_settings(load: Load) -> None:
    test = load().test
    default = CollectLimits()
    assert (default.max_bytes, default.max_files) == (test.MAX_COLLECT_BYTES, test.MAX_COLLECT_FILES)
    assert test.MAX_OUTPUT_BYTES == MAX_OUTPUT_BYTES
    test = load(TEST + 'MAX_COLLECT_BYTES = "500M"\nMAX_COLLECT_FILES = 7\nMAX_OUTPUT_BYTES = "4K"').test
    assert (test.MAX_COLLECT_BYTES, test.MAX_COLLECT_FILES, test.MAX_OUTPUT_BYTES) == (500 << 20, 7, 4096)
    wrong = 'MAX_COLLECT_BYTES = "-1G"\nMAX_COLLECT_FILES = 0\nMAX_OUTPUT_BYTES = "16M"\nPIDS_LIMIT = True'
    found = problems(load, TEST + wrong)
    assert found.keys() == {"MAX_COLLECT_BYTES", "MAX_COLLECT_FILES", "MAX_OUTPUT_BYTES", "PIDS_LIMIT"}
