"""Records of a network case on four hosts, around steps that a test makes up."""

from typing import Any

from run_benchmarks.results.records import CaseRecord, NodeRecord, RoundRecord, Verdict


def case(model: str = "network", **config: Any) -> CaseRecord:
    """A case that passed."""
    return CaseRecord(
        name="PAIRS",
        folder="PAIRS",
        model=model,
        framework="pytorch",
        config_file="c.py",
        config={"slow_percent": 15.0, **config},
        nnodes=4,
        nproc=2,
        verdict=Verdict.PASS,
        reason="",
        rounds=[Verdict.PASS],
        metrics={},
    )


def a_round(found: list[dict[str, Any]], **metrics: Any) -> RoundRecord:
    """A round with these values of STEP_END; its hosts are 10.0.0.1 to 10.0.0.4."""
    nodes = [
        NodeRecord(
            host=f"10.0.0.{node_rank + 1}",
            node_rank=node_rank,
            ranks=[2 * node_rank, 2 * node_rank + 1],
            exit_code=0,
            argv=[],
            environment={},
            image=None,
            image_id=None,
            interface=None,
            clock_offset_seconds=0,
            files={},
            missing=[],
            monitor=None,
        )
        for node_rank in range(4)
    ]
    return RoundRecord(
        run_id="run1",
        case="PAIRS",
        round=1,
        verdict=Verdict.PASS,
        reason="",
        started_ms=0,
        finished_ms=1,
        phase_seconds={},
        master_port=1,
        world_size=8,
        metrics=metrics,
        steps=found,
        nodes=nodes,
    )
