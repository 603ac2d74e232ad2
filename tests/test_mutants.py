"""The mutants can be made, and one that tests notice is told from one that they do not."""

from pathlib import Path

import pytest

from tests.mutants import Mutant, noticed_by, read


def test_the_functions_and_tests_of_each_mutant_are_there() -> None:
    assert read()


TESTS = ["tests/no_such_test.py", "tests/test_mutants.py::test_of_another_name"]


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    file = tmp_path / "mutants.toml"
    place = "tests/mutants.py::Mutant.no_such_method"
    file.write_text(f'["one"]\nplace = "{place}"\nold = "x"\nnew = ""\ntests = {TESTS}\n')
    with pytest.raises(ValueError, match="\n".join(f"one: there is no {each}" for each in (place, *TESTS))):
        read(file)


TWICE = """
class First:
    @property
    def value(self):
        return 1

def value():
    return 1
"""


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("First.value", TWICE.replace("return 1", "return 2", 1)),
        ("value", TWICE[: TWICE.rindex("1")] + "2\n"),
        ("First.other", None),
        ("", None),
    ],
    ids=["method", "function", "no such function", "stands twice in the file"],
)
def test_a_mutant_changes_its_own_function_alone(name: str, changed: str | None) -> None:
    mutant = Mutant(name="m", place=f"made.py::{name}", old="return 1", new="return 2", tests=())
    assert mutant.changed(TWICE) == changed


@pytest.mark.parametrize(
    ("old", "fits"),
    [
        ("count + 1", True),
        ("total + 1", True),
        ("total +\n    1", True),
        ("total - 1", False),
        ("other(total + 1)", False),
    ],
    ids=["as it stands", "renamed", "on two lines", "changed", "gone"],
)
def test_by_day_a_text_that_left_its_function_is_noticed_and_a_renamed_variable_is_none(old: str, fits: bool) -> None:
    mutant = Mutant(name="m", place="made.py::value", old=old, new="", tests=())
    assert mutant.fits("def value(count):\n    return count + 1\n\ndef other(total):\n    return total - 1\n") == fits


def test_a_mutant_whose_text_is_gone_is_no_proof(tmp_path: Path) -> None:
    (tmp_path / "made.py").write_text("VALUE = 1\n")
    mutant = Mutant(name="m", place="made.py", old="VALUE = 2", new="", tests=("test_made.py",))
    with pytest.raises(ValueError, match=r"'VALUE = 2' does not stand once in made\.py"):
        noticed_by(mutant, tmp_path)


MADE = """
import made, os, pytest

@pytest.mark.parametrize("value", ["1 - 0", "[1]"])
def test_it(value): assert made.VALUE == 1

def test_that_dies(): made.VALUE == 1 or os.kill(os.getpid(), made.VALUE)

def test_that_fails_anyway(): assert made.VALUE == 0
"""


@pytest.mark.parametrize(
    ("new", "test", "noticed"),
    [
        ("2", "test_made.py", "test_made.py::test_it[1 - 0]"),
        ("1 ", "test_made.py::test_it", None),
        ("1 +", "test_made.py", None),
        ("2", "test_made.py::test_that_fails_anyway", None),
        ("signal.SIGSEGV", "test_made.py::test_that_dies", "test_made.py::test_that_dies"),
        ("signal.SIGKILL", "test_made.py::test_that_dies", None),
    ],
    ids=["noticed", "equal", "unreadable", "fails without it", "ends Python", "ended by somebody else"],
)
def test_a_mutant_that_is_noticed(tmp_path: Path, new: str, test: str, noticed: str | None) -> None:
    """A test must fail for the mutant: that the changed file cannot be read, or another cause, proves nothing."""
    (tmp_path / "made.py").write_text("import signal\nVALUE = 1\n")
    (tmp_path / "test_made.py").write_text(MADE)
    mutant = Mutant(name="m", place="made.py", old="1", new=new, tests=(test,))
    assert noticed_by(mutant, tmp_path) == noticed
    assert (tmp_path / "made.py").read_text() == "import signal\nVALUE = 1\n"
