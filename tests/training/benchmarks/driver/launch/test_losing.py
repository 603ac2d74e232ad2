"""A rank that is killed while its peers connect to it is blamed each time, whatever they say of it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from protocol.pulse import is_of_communication
from tests.tiers import NIGHTLY, samples
from tests.training.benchmarks.driver.launch.launching import ROOT
from training.benchmarks.driver.launch.failures import LOST_PEER, WAITED_IN_VAIN

SEEDS = samples(4, 200)


@pytest.mark.timeout(1800 if NIGHTLY else 600)
def test_who_was_killed_is_blamed_and_every_other_failure_is_an_effect(tmp_path: Path) -> None:
    """The texts are gloo's and the store's own; the lists of texts agree with where the errors came from."""
    argv = [sys.executable, "-m", f"{__package__}.losing", str(tmp_path), str(SEEDS.start), str(len(SEEDS))]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rounds = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(rounds) == len(SEEDS)
    for each in rounds:
        assert each["blamed"] == each["victim"], each
        for other in each["others"]:
            said = any(text in other["message"].lower() for text in (*LOST_PEER, *WAITED_IN_VAIN))
            assert other["stopped"] or other["in_communication"] or not said, each
            assert other["stopped"] or other["lost_peer"] or other["waited"] or other["in_communication"], each
            # A rank on the node of the one that was killed needs no text.
            same_node = other["rank"] // each["ranks"] == each["victim"] // each["ranks"]
            assert not same_node or other["stopped"] or other["lost_peer"] or other["waited"], each


def test_a_rank_s_own_mistake_is_none_of_communication() -> None:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # type: ignore[attr-defined]
    try:
        for mistake in (
            lambda: dist.all_reduce("text"),
            lambda: dist.new_group(ranks=[7]),
            lambda: torch.ones(2) @ torch.ones(3),
            lambda: int("no number"),
        ):
            with pytest.raises(Exception) as found:
                mistake()
            assert not is_of_communication(found.value), found.value
    finally:
        dist.destroy_process_group()
