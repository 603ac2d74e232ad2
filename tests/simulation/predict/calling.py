"""Calls the verbs of the predictions as a user does."""

from __future__ import annotations

import json

import pytest

from simulation import cli


def asked(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, object]:
    assert cli.main([*words, "--json"]) == 0, capsys.readouterr().err
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert cli.main(list(words)) == 2
    return capsys.readouterr().err
