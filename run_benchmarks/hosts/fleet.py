"""Runs one action on many hosts in parallel, with a limit, and keeps the result or the error of each."""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Generic, TypeVar

from run_benchmarks.errors import ClusterDynoError, HostError

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")
MAX_PARALLEL = 64
SHOWN = 300  # characters of an unexpected error


@dataclass(frozen=True)
class FleetResult(Generic[ResultT]):
    """The result or the error per key; keys are in the order of the call."""

    succeeded: dict[str, ResultT]
    failed: dict[str, ClusterDynoError]

    def raise_first(self) -> dict[str, ResultT]:
        """The results; fails with the first host's error if there is one, which knows those of the others."""
        for error in self.failed.values():
            if isinstance(error, HostError):
                error.beside = [*self.failed.values()]
            raise error
        return self.succeeded


def for_each(
    items: Mapping[str, ItemT],
    action: Callable[[ItemT], ResultT],
    *,
    concurrency: int = MAX_PARALLEL,
    reads_hosts: bool = False,
) -> FleetResult[ResultT]:
    """Call `action` on every value in parallel threads and wait for all.

    ClusterDynoErrors are kept per key; any other exception is a defect and is raised after all calls have ended. With
    `reads_hosts` the keys are hosts, and such an exception is that host's error: it is of what the host sent. An
    OSError is raised even then: it is of the head node.
    """
    if not items:
        return FleetResult({}, {})
    results: dict[str, ResultT] = {}
    errors: dict[str, ClusterDynoError] = {}
    with ThreadPoolExecutor(min(concurrency, len(items)), thread_name_prefix="fleet") as pool:
        futures = {pool.submit(action, value): key for key, value in items.items()}
        for future in as_completed(futures):
            key = futures[future]
            try:
                results[key] = future.result()
            except ClusterDynoError as error:
                errors[key] = error
            except Exception as error:
                if not reads_hosts or isinstance(error, OSError):
                    raise
                errors[key] = HostError(key, f"cannot be handled: {type(error).__name__}: {str(error)[:SHOWN]}")
                errors[key].__cause__ = error
    return FleetResult(_ordered(results, items), _ordered(errors, items))


def together(items: Mapping[str, ItemT], action: Callable[[ItemT], ResultT]) -> list[ResultT]:
    """The results in the order of the items: in parallel threads, or here if there is only one.

    Raises:
        Exception: of one of them, after all have ended.
    """
    if len(items) == 1:
        return [action(item) for item in items.values()]
    return [*for_each(items, action).raise_first().values()]


def _ordered(values: dict[str, ResultT], order: Iterable[str]) -> dict[str, ResultT]:
    return {key: values[key] for key in order if key in values}


def by_host(errors: Iterable[ClusterDynoError]) -> dict[str, str]:
    """The messages of errors by host; empty if one of them is no host's."""
    found = [*errors]
    hosts = [error for error in found if isinstance(error, HostError)]
    return {error.host: str(error) for error in hosts} if len(hosts) == len(found) else {}
