"""Notes when calls end that the program has not waited for yet: a thread a process group waits for them in order."""

import threading
import time
from queue import SimpleQueue

import torch.distributed as dist


class Pending:
    """A call under way. `done_ns` is when it was complete by the clock time.monotonic_ns, 0 before."""

    __slots__ = ("_lock", "done_ns", "error", "work")

    def __init__(self, work: dist.Work) -> None:
        self.work = work
        self.done_ns = 0
        self.error: BaseException | None = None
        self._lock = threading.Lock()
        self._lock.acquire()

    def finish(self) -> None:
        """Wait for the call, and note the time; in the thread."""
        try:
            self.work.wait()
        except Exception as error:  # noqa: BLE001 # raised again where the program waits
            self.error = error
        self.done_ns = time.monotonic_ns()
        self._lock.release()

    def wait(self) -> None:
        """Return when the call is complete.

        Raises:
            RuntimeError: it failed, as torch says.
        """
        self._lock.acquire()
        if self.error is not None:
            raise self.error


class Waiters:
    """The threads of all groups; a context manager. gloo lets one thread alone wait for a send or receive."""

    def __init__(self) -> None:
        self._queues: dict[object, SimpleQueue[Pending | None]] = {}

    def add(self, key: object, work: dist.Work) -> Pending:
        """Watch a call; those of one key end in the order in which they are added."""
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = SimpleQueue()
            threading.Thread(target=_serve, args=(queue,), name=f"waits {key}", daemon=True).start()
        pending = Pending(work)
        queue.put(pending)
        return pending

    def close(self) -> None:
        """Let the threads end once they have nothing to wait for."""
        for queue in self._queues.values():
            queue.put(None)


def _serve(queue: "SimpleQueue[Pending | None]") -> None:
    while (pending := queue.get()) is not None:
        pending.finish()
