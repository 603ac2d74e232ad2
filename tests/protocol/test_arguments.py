"""The command line of a rank: settings from files and --set, or from the case.json of a plan, never from both."""

import pytest

from protocol.arguments import parse_arguments


@pytest.mark.parametrize("other", [["--config_file", "a.py"], ["--set", "seed=1"]])
def test_a_case_file_has_every_setting(other: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        parse_arguments("probe", ["--case_file", "case.json", "--vendor", "cpu", *other])
    assert left.value.code == 2
    assert "--case_file has every setting: it goes without --config_file and --set" in capsys.readouterr().err
