"""requirements.txt and environment_variables.env of a case."""

from pathlib import Path

import pytest

import vendors
from vendors import CaseFileError, case_environment, case_requirements
from vendors.case_files import requirement_names


def write(directory: Path, name: str, text: str | bytes) -> Path:
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


ENV = "config/environment_variables.env"


def test_a_case_without_files_needs_nothing(tmp_path: Path) -> None:
    assert case_requirements(tmp_path) == ()
    assert case_environment(tmp_path) == {}


def test_requirements_are_found_and_named(tmp_path: Path) -> None:
    text = "# why\nh5py==3.16.0   # data\n\nSentence_Piece [x] >=0.2 ; python_version > '3.10'\nfoo @ https://host/foo.whl#sha256=ab\n"
    path = write(tmp_path, "requirements.txt", text)
    assert case_requirements(tmp_path) == (path,)
    assert requirement_names(path) == [(2, "h5py"), (4, "sentence-piece"), (5, "foo")]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("-r other.txt", "pip option"),
        ("--index-url https://host/simple", "pip option"),
        ("./wheels/foo.whl", "no requirement"),
        ("h5py 3.16", "no requirement"),
        ("h5py==3.x", "no requirement"),
        ("h5py; python > '3'", "no requirement"),
        ("apex", "web-login toolkit"),
        ("APEX==0.1", "web-login toolkit"),
    ],
)
def test_a_wrong_requirement_is_named_by_file_and_line(tmp_path: Path, line: str, problem: str) -> None:
    path = write(tmp_path, "requirements.txt", f"h5py\n{line}\n")
    with pytest.raises(CaseFileError, match=problem) as error:
        case_requirements(tmp_path)
    assert str(error.value).startswith(f"{path}, line 2: ")


def test_environment_is_dockers_env_file(tmp_path: Path) -> None:
    write(tmp_path, ENV, "# comment\n\nA=1\n  # indented comment\nB=two words # kept\nC=\nD='q'=x\n")
    assert case_environment(tmp_path) == {"A": "1", "B": "two words # kept", "C": "", "D": "'q'=x"}


def test_variables_of_one_config_are_over_those_of_all(tmp_path: Path) -> None:
    write(tmp_path, ENV, "A=1\nB=2\n")
    path = write(tmp_path, "config/config_A100x1x8.env", "B=3\nC=4\n")
    assert case_environment(tmp_path, "config_A100x1x8") == {"A": "1", "B": "3", "C": "4"}
    assert case_environment(tmp_path, "config_A100x2x8") == {"A": "1", "B": "2"}
    path.write_text("B\n")
    with pytest.raises(CaseFileError, match=r"config_A100x1x8\.env, line 1: 'B' sets no value"):
        case_environment(tmp_path, "config_A100x1x8")


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("HOME", "sets no value; expected KEY=VALUE"),
        ("=1", "is no variable name"),
        ("MY-KEY=1", "'MY-KEY' is no variable name"),
        ("export A=1", "'export A' is no variable name"),
        ("OK=2", "'OK' is set twice"),
    ],
)
def test_a_wrong_variable_is_named_by_file_and_line(tmp_path: Path, line: str, problem: str) -> None:
    path = write(tmp_path, ENV, f"OK=1\n\n{line}\n")
    with pytest.raises(CaseFileError) as error:
        case_environment(tmp_path)
    assert str(error.value).startswith(f"{path}, line 3: ")
    assert problem in str(error.value)


def test_bytes_that_are_no_text_are_named(tmp_path: Path) -> None:
    write(tmp_path, ENV, b"A=1\nB=\xff\n")
    with pytest.raises(CaseFileError, match="line 2: not UTF-8"):
        case_environment(tmp_path)


def test_shipped_case_files_are_valid() -> None:
    root = Path(vendors.__file__).parent
    for directory in (path.parent for path in root.glob("*/*/config")):
        case_requirements(directory)
        case_environment(directory)
    assert [*case_environment(vendors.case_dir("nvidia", "llama", "pytorch"))] == ["PYTORCH_CUDA_ALLOC_CONF"]
