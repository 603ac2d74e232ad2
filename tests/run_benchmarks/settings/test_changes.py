"""--set, --case and --repeat: what they change, what they refuse, and that a run's journal keeps them."""

from pathlib import Path

import pytest

from run_benchmarks.errors import InputProblems
from run_benchmarks.plan.resolve import resolve
from run_benchmarks.settings.changes import Changes
from run_benchmarks.settings.settings import Settings, load_settings
from tests.run_benchmarks.conftest import TEST, Load

TWO = TEST.replace('["ONE"]', '["ONE", "ONE_MORE"]') + 'ONE_MORE = ONE | {"repeat": 2}\nLATER = dict(ONE)\n'


@pytest.fixture
def changed(load: Load, tmp_path: Path) -> object:
    """changed(test text, ...): the settings of that file with these changes."""

    def changed(text: str, *sets: str, cases: tuple[str, ...] = (), repeat: int | None = None) -> Settings:
        load(text)
        changes = Changes(sets=sets, cases=cases, repeat=repeat)
        return load_settings(tmp_path / "cluster_conf.py", tmp_path / "test_conf.py", changes)

    return changed


def mistakes(changed: Load, text: str, *sets: str, **rest: object) -> list[str]:
    with pytest.raises(InputProblems) as caught:
        resolve(changed(text, *sets, **rest), local_python="python3")
    return [str(problem) for problem in caught.value.problems]


def test_a_set_value_stands_for_that_of_the_file(changed: Load) -> None:
    files = ("STALL_LIMIT=60", "STALL_LIMIT=90", "MASTER_PORT=30000", "FLAGPERF_LOG_LEVEL=debug", "CLEAR_CACHES=true")
    cases = ("ONE.repeat=3", "ONE.overrides.sizes=1K..4K x2", 'ONE.overrides.backend="gloo"', "ONE_MORE.time_limit=5")
    words = files + cases
    settings = changed(TWO, *words)
    assert (settings.test.STALL_LIMIT, settings.cluster.MASTER_PORT) == (90, 30000)
    assert settings.test.FLAGPERF_LOG_LEVEL == "debug" and settings.test.CLEAR_CACHES
    assert settings.cases["ONE"].repeat == 3
    assert settings.cases["ONE"].overrides == {"sizes": "1K..4K x2", "backend": "gloo"}
    assert settings.cases["ONE_MORE"].time_limit == 5 and settings.cases["ONE_MORE"].overrides == {}
    assert settings.changes.sets == words


def test_a_set_value_reaches_a_case_of_flagperf_s_newer_form(changed: Load) -> None:
    text = 'VENDOR = "cpu"\nRUNTIME = "process"\nCASES = {"network:pytorch:CPU:1:2:1": ""}\n'
    settings = changed(text, "network:pytorch:CPU:1:2:1.overrides.seed=7", "network:pytorch:CPU:1:2:1.retries=1")
    (case,) = settings.cases.values()
    assert case.overrides == {"seed": 7} and case.retries == 1


def test_cases_of_flagperf_s_newer_form_are_defined_by_set(changed: Load) -> None:
    settings = changed(TWO, 'CASES={"network:pytorch:CPU:1:2:3": ""}')
    (case,) = settings.cases.values()
    assert (case.nnodes, case.nproc, case.repeat) == (1, 2, 3)


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("SSH_PORT=70000", "--set: SSH_PORT = 70000: expected a whole number from 1 to 65535 (where sshd listens)"),
        ("ONE.nproc=0", "--set: ONE.nproc = 0: expected a whole number from 1 to 1024 (how many processes run on"),
        ("ONE.nprocs=2", "--set: ONE.nprocs = 2: unknown key; did you mean 'nproc'?"),
        ("TWO.nproc=2", "--set: TWO.nproc = 2: no case 'TWO'; known: LATER, ONE, ONE_MORE"),
        ("STAL_LIMIT=2", "--set: STAL_LIMIT = 2: unknown key; did you mean 'STALL_LIMIT'?"),
        ("STALL_LIMIT", "--set 'STALL_LIMIT': KEY=value, CASE.key=value or CASE.overrides.key=value"),
        ("VENDOR=cpuu", "--set: VENDOR = 'cpuu': unknown vendor 'cpuu'"),
        ("ONE.config=no_such", "--set: ONE.config = 'no_such': no file no_such.py in "),
        ("ONE.overrides.itertions=5", "--set: ONE.overrides.itertions = 5: unknown setting; did you mean 'iterations'"),
        ("ONE.overrides.iterations=-5", "--set: ONE.overrides.iterations = -5: expected a whole number of at least 1"),
        ("ONE.overrides=5", "--set: ONE.overrides = 5: expected a dict (settings of the case config"),
        ("ONE.data_dir_host=/data", "test_conf.py with --set: ONE: data_dir_host and data_dir_container are set toget"),
        (
            "ONE.overrides.api_key=abcdefghijkl",
            "--set: ONE.overrides.api_key = '***': nothing secret: --set is kept in",
        ),
        ("ACCE_CONTAINER_OPT=-e HF_TOKEN=abcdefghijkl", "--set: ACCE_CONTAINER_OPT = '***': nothing secret: --set is"),
    ],
)
def test_a_mistake_in_a_set_value_is_told_as_its_own(word: str, said: str, changed: Load) -> None:
    (found,) = mistakes(changed, TWO, word)
    assert said in found


def test_cases_are_chosen_by_name_and_pattern(changed: Load) -> None:
    assert list(changed(TWO, cases=("ONE",)).cases) == ["ONE"]
    assert list(changed(TWO, cases=("*MORE", "ONE")).cases) == ["ONE", "ONE_MORE"]
    (unlisted,) = mistakes(changed, TWO, cases=("LAT*",))
    assert unlisted.startswith("--case 'LAT*': a name or pattern (*, ?) of CASES; LATER is defined, but not in CASES")
    (unknown,) = mistakes(changed, TWO, cases=("ONE_MOR",))
    assert unknown.endswith("did you mean 'ONE_MORE'? known: ONE, ONE_MORE")


def test_rounds_of_every_case(changed: Load) -> None:
    assert [case.repeat for case in changed(TWO, repeat=4).cases.values()] == [4, 4]
    assert mistakes(changed, TWO, repeat=0) == ["--repeat 0: expected a whole number from 1 to 10000"]


@pytest.mark.parametrize("key", ["nproc", "repeat"])
def test_numbers_that_no_plan_could_hold_are_refused(key: str, changed: Load) -> None:
    (found,) = mistakes(changed, TEST + f'ONE["{key}"] = 10**9\n')
    assert f"ONE.{key} = 1000000000: expected a whole number from 1 to " in found


def test_rounds_times_hosts_have_a_bound_of_their_own(load: Load) -> None:
    hosts = f"HOSTS = {[f'h{number}' for number in range(100)]}\n"
    test = TEST + 'ONE["nnodes"] = 100\nONE["repeat"] = 501\n'
    with pytest.raises(InputProblems) as caught:
        resolve(load(test, hosts), local_python="python3")
    assert "ONE.repeat = 501: expected a whole number from 1 to 500 on 100 hosts" in str(caught.value)
    assert resolve(load(test.replace("501", "500"), hosts), local_python="python3").cases[0].settings.repeat == 500
