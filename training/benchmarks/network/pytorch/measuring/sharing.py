"""Passes results between ranks through the job's store, which needs no operation of the network that is measured.

A collective of all ranks would open connections among them all, and a rank that waits in one of NCCL's keeps its
accelerator busy. A rank that waits for the store sleeps.
"""

import itertools
import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from training.benchmarks.driver.workload.process_group import ProcessGroup


class Exchange:
    """Numbered exchanges of JSON between the ranks; all ranks make the same calls in the same order.

    `timeout_s` is the longest wait in seconds.
    """

    _made = itertools.count()

    def __init__(self, group: ProcessGroup, timeout_s: float) -> None:
        self._rank = group.placement.rank
        # Keys that no other exchange of the job has.
        self._name = f"network/{next(self._made)}"
        self._store = dist.distributed_c10d._get_default_store()
        self._timeout = timedelta(seconds=timeout_s)
        self._number = 0

    def to_first(self, senders: Sequence[int], mine: Mapping[str, Any] | None) -> list[dict[str, Any]]:
        """The values of the ranks `senders`, in their order, on rank 0; nothing on the others, which do not wait.

        `mine` is this rank's if it is one of them.
        """
        self._number += 1
        if self._rank != 0:
            if mine is not None and self._rank in senders:
                self._store.set(self._key(self._rank), json.dumps(mine, allow_nan=False))
            return []
        return [dict(mine or {}) if rank == 0 else self._taken(self._key(rank)) for rank in senders]

    def from_first(self, mine: Mapping[str, Any]) -> dict[str, Any]:
        """The value of rank 0 on every rank, which waits for it."""
        self._number += 1
        key = self._key("all")
        if self._rank == 0:
            self._store.set(key, json.dumps(mine, allow_nan=False))
            return dict(mine)
        return self._read(key)

    def _key(self, part: int | str) -> str:
        return f"{self._name}/{self._number}/{part}"

    def _read(self, key: str) -> dict[str, Any]:
        self._store.wait([key], self._timeout)
        found: dict[str, Any] = json.loads(self._store.get(key))
        return found

    def _taken(self, key: str) -> dict[str, Any]:
        found = self._read(key)
        self._store.delete_key(key)
        return found
