"""The record of a traced call: its ranks as text, and the definitions that a valid one keeps."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.rows.calls import Call
from workloads.rows.ops import NEVER, CommType
from workloads.rows.ranks import Ranks

OP = Call(
    comm_type=CommType.all_to_all_single,
    group="ep",
    ranks=Ranks.of([0, 2, 4]),
    dtype="bfloat16",
    bytes=6,
    in_splits=(1, 2, 3),
    out_splits=(0, 0, 8),
    phase="forward",
    overlap=2,
)


@given(st.lists(st.integers(0, 70_000), min_size=1, max_size=20, unique=True))
def test_ranks_survive_as_text(listed: list[int]) -> None:
    ranks = Ranks.of(listed)
    assert list(ranks) == listed and len(ranks) == len(listed) and listed[-1] in ranks
    assert Ranks.parse(str(ranks)) == ranks and not set(str(ranks)) & set(", \n")


def test_a_progression_has_one_form() -> None:
    assert str(Ranks.of(range(3, 4096, 8))) == "3:8:512" and Ranks.parse("3+11") == Ranks.of([3, 11])
    assert Ranks.parse("5:9:1") == Ranks.of([5]) and str(Ranks.of([0, 1, 4, 5])) == "0+1+4+5"
    assert Ranks.of([1, 0]) != Ranks.of([0, 1])


@pytest.mark.parametrize("text", ["", "a", "1:2", "1:0:4", "-1:1:2", "1:1:0", "3+3", "1:2:3:4"])
def test_what_is_no_ranks_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="ranks"):
        Ranks.parse(text)


def test_a_valid_call_has_no_problems_wherever_it_stands() -> None:
    assert OP.problems() == replace(OP, overlap=NEVER).problems() == replace(OP, overlap=None).problems() == []
    assert OP.identity == replace(OP, module="other", micro_batch=3, overlap=0).identity
    assert OP.identity != replace(OP, out_splits=(0, 8, 0)).identity


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (replace(OP, group="dp_tp"), "group"),
        (replace(OP, phase="fwd"), "phase"),
        (replace(OP, bytes=7), "in_splits add up to 6 bytes, not 7"),
        (replace(OP, out_splits=(1,)), "out_splits has 1 entries for 3 ranks"),
        (replace(OP, overlap=-2), "overlap is -2, less than -1"),
        (replace(OP, peer=1), "peer"),
        (replace(OP, comm_type=CommType.isend, in_splits=None, out_splits=None), "peer is None in isend"),
        (replace(OP, bytes=-1, in_splits=None), "less than 0"),
    ],
)
def test_what_breaks_a_definition_is_named(wrong: Call, said: str) -> None:
    assert said in " ".join(wrong.problems())
