"""The command line of an acceptance: what it refuses before anything runs."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import pytest

from run_benchmarks.commands.accepting import accept, budget_seconds, chosen_rungs
from run_benchmarks.commands.options import asked_for
from run_benchmarks.errors import ConfigError


def test_a_budget_has_a_unit_and_rungs_keep_their_order() -> None:
    assert [budget_seconds(text) for text in ("90s", "1.5m", "2h")] == [90, 90, 7200]
    assert chosen_rungs("whole, health") == ["health", "whole"]


@pytest.mark.parametrize("text", ["", "30", "0m", "fast", "-5m", "1d"])
def test_a_budget_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="a time such as 90s, 30m or 2h"):
        budget_seconds(text)


def test_every_unknown_rung_is_named() -> None:
    with pytest.raises(ConfigError) as caught:
        chosen_rungs("health,disk,moon")
    assert "disk" in str(caught.value) and "moon" in str(caught.value)


def test_cases_and_repeats_are_refused_since_they_would_have_no_effect(tmp_path: Path) -> None:
    asked = asked_for(Namespace(case=["BERT*"], repeat=3))
    with pytest.raises(ConfigError) as caught:
        accept(asked, rungs="health", budget="1m", nproc=1)
    assert "--case" in str(caught.value) and "--repeat" in str(caught.value)
    assert list(tmp_path.iterdir()) == []
