"""Stock Debian 12 with its Python 3.11.2: a user without rights, under nohup, from another directory, no network."""

from collections.abc import Iterator

import pytest

from tests.cluster.bed import TestBed
from tests.matrix import steps
from tests.matrix.__main__ import main
from tests.matrix.userland import SUITES, USER_ID, Userland

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def debian() -> Iterator[Userland]:
    with Userland(SUITES["bookworm"]) as userland:
        steps.set_up(userland)
        yield userland


@pytest.mark.nightly
def test_it_is_what_it_says(debian: Userland) -> None:
    code = "import os, sys; print(sys.version.split()[0], os.getuid(), os.getcwd(), os.listdir('/sys/class/net'))"
    answer = debian.run(["/usr/bin/python3", "-c", code], directory="/tmp").stdout.split("\n")[0]
    assert answer.startswith("3.11.2 ") and answer.endswith(f" {USER_ID} /tmp ['lo']")
    assert debian.run(["python"]).returncode == 127, "stock Debian has no python"


@pytest.mark.nightly
def test_make_run_and_a_run_on_hosts(debian: Userland, testbed: TestBed) -> None:
    steps.install_and_run(debian)
    steps.run_on_hosts(debian, testbed)


def test_an_unknown_suite_is_refused_with_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bookwurm"]) == 2
    assert "no suite bookwurm; known: bookworm, trixie" in capsys.readouterr().err
