"""A cheap way to run the benchmark: torch takes seconds to import."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tests.training.benchmarks.driver.launch.launching import ALONE


@dataclass(frozen=True)
class Ended:
    """A run of one rank: its exit code, what it printed, and what it said on stderr."""

    code: int | str | None
    output: str
    errors: str


@pytest.fixture
def run_alone(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ended]:
    """Runs the benchmark with these arguments and the settings given by name as the only rank, in this process."""
    import torch.distributed as dist

    from training.benchmarks.network.pytorch.suite import main

    for name, value in {**ALONE, "GROUP_RANK": "0"}.items():
        monkeypatch.setenv(name, value)

    def run(*options: str, **settings: object) -> Ended:
        arguments = [*options] + [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        monkeypatch.setattr("sys.argv", ["network", *arguments])
        code: int | str | None = 0
        try:
            main()
        except SystemExit as error:
            code = error.code
        assert not dist.is_initialized(), "the group must be left"
        return Ended(code, *capsys.readouterr())

    return run
