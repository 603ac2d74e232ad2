"""The mutants can be made, and one that tests notice is told from one that they do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutants import Mutant, noticed_by, read


def test_each_mutant_can_be_made() -> None:
    assert read()


def test_what_cannot_be_made_is_named(tmp_path: Path) -> None:
    file = tmp_path / "mutants.toml"
    entry = 'file = "Makefile"\nold = "no such text"\nnew = ""\ntests = ["tests/no_such_test.py"]\n'
    file.write_text(f'["one"]\n{entry}')
    with pytest.raises(
        ValueError, match=r"one: 'no such text' stands 0 times in Makefile\none: there is no tests/no_s"
    ):
        read(file)


MADE = """
import made, pytest

@pytest.mark.parametrize("value", ["1 - 0", "[1]"])
def test_it(value): assert made.VALUE == 1

def test_that_fails_anyway(): assert made.VALUE == 0
"""


@pytest.mark.parametrize(
    ("new", "test", "noticed"),
    [
        ("2", "test_made.py", "test_made.py::test_it[1 - 0]"),
        ("1 ", "test_made.py::test_it", None),
        ("1 +", "test_made.py", None),
        ("2", "test_made.py::test_that_fails_anyway", None),
    ],
    ids=["noticed", "equal", "unreadable", "fails without it"],
)
def test_a_mutant_that_is_noticed(tmp_path: Path, new: str, test: str, noticed: str | None) -> None:
    """A test must fail for the mutant: that the changed file cannot be read, or another cause, proves nothing."""
    (tmp_path / "made.py").write_text("VALUE = 1\n")
    (tmp_path / "test_made.py").write_text(MADE)
    mutant = Mutant(name="m", file="made.py", old="1", new=new, tests=(test,))
    assert noticed_by(mutant, tmp_path) == noticed
    assert (tmp_path / "made.py").read_text() == "VALUE = 1\n"
