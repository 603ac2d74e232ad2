"""The mutants can be made, and one that tests notice is told from one that they do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutants import Mutant, is_noticed, read


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


@pytest.mark.parametrize(("new", "noticed"), [("2", True), ("1 ", False), ("1 +", False)])
def test_a_mutant_that_is_noticed(tmp_path: Path, new: str, noticed: bool) -> None:
    """A test must fail: that the changed file cannot be read at all proves nothing."""
    (tmp_path / "made.py").write_text("VALUE = 1\n")
    (tmp_path / "test_made.py").write_text("import made\ndef test_it(): assert made.VALUE == 1\n")
    mutant = Mutant(name="m", file="made.py", old="1", new=new, tests=("test_made.py",))
    assert is_noticed(mutant, tmp_path) is noticed
    assert (tmp_path / "made.py").read_text() == "VALUE = 1\n"
