"""Defines what a round's record says of its failure."""

from pydantic import BaseModel


class FirstFailure(BaseModel, extra="forbid"):
    """Where a round failed first, or stalled. `rank` is None if a node failed before or beside its ranks.

    Both `host` and `rank` are None if they cannot be determined; `message` says why. `evidence` supports the statement.
    `lost`: not the workload but the infrastructure broke the round: a host, its engine, somebody who ended a task.
    """

    host: str | None
    rank: int | None
    exit_code: int | None
    signal: str | None
    message: str
    log_tail: str
    evidence: list[str] = []
    lost: bool = False
