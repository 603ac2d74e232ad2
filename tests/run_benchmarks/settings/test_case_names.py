"""Names of cases in any script: one form of each, a safe folder, and container names of their own."""

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from run_benchmarks.plan.planner import make_plan
from run_benchmarks.plan.resolve import resolve
from run_benchmarks.settings.case_names import (
    MOST_BYTES,
    case_folder,
    case_name,
    container_stem,
    is_case_name,
    same_folder,
)
from tests.run_benchmarks.conftest import TEST, Load

CHINESE = TEST.replace("ONE", "全归约_单机")


@pytest.mark.parametrize("name", ["全归约_单机", "Ümläut", "тест-1", "हिन्दी", "9", "a.b+c-d", "x" * MOST_BYTES])
def test_names_that_are_some(name: str) -> None:
    assert is_case_name(case_name(name))


@pytest.mark.parametrize("name", ["", "_a", ".a", "-a", "a/b", "a b", "a\n", "a\0", "a\u202eb", "全" * 41, "a:b", "🚀"])
def test_names_that_are_none(name: str) -> None:
    assert not is_case_name(name)


def test_composed_and_decomposed_are_one_name(load: Load) -> None:
    decomposed = unicodedata.normalize("NFD", "ÜBER")
    settings = load(TEST.replace('["ONE"]', f'["{decomposed}"]').replace("ONE =", "ÜBER ="))
    assert list(settings.cases) == ["ÜBER"] and settings.undefined_cases == ()


def test_a_chinese_name_names_folder_container_and_label(load: Load) -> None:
    settings = load(CHINESE.replace('"process"', '"docker"'))
    plan = make_plan(settings, resolve(settings, local_python="python3"), run_id="run1", code_digest="0")
    (case,) = plan.cases
    node = case.rounds[0].nodes[0]
    assert case.folder == "全归约_单机" and "/全归约_单机/round1/" in node.log_dir_host
    assert re.fullmatch(r"clusterdyno-run1-_+-[0-9a-f]{8}-r1-n0", node.workload.name)
    assert node.workload.labels["org.clusterdyno.case"] == "全归约_单机"


@given(st.text(st.characters(categories=["L", "N", "M"], include_characters="_-.+:"), min_size=1, max_size=80))
def test_a_container_s_name_is_what_docker_allows(text: str) -> None:
    assert re.fullmatch(r"[a-z0-9_.-]{1,60}", container_stem(case_name(text)))


def test_names_of_one_folder_are_found() -> None:
    assert same_folder(["a:b", "c", "a_b", "C"]) == [("a:b", "a_b"), ("c", "C")]
    assert container_stem("甲") != container_stem("乙") and case_folder("a:b") == "a_b"


def test_two_cases_of_one_folder_are_a_mistake(load: Load) -> None:
    text = 'VENDOR = "cpu"\nCASES = ["ONE", "one"]\nONE = {"model": "network", "framework": "pytorch", "nproc": 1, '
    with pytest.raises(Exception, match="CASES = 'one': expected another name: its results would be in one folder"):
        load(text + '"config": "config_CPUx1x2"}\none = ONE\n')
