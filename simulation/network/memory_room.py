"""Refuses a simulation that would take more memory than this machine has free."""

from common.errors import input_problem
from common.host_memory import available_bytes


class MemoryRoom:
    """Adds up what a simulation takes (bytes); `place` and `advice` are for the user, whom it tells when to stop."""

    def __init__(self, place: str, advice: str) -> None:
        self._place, self._advice, self.taken = place, advice, 0
        self._free = available_bytes()

    def take(self, number: int, bytes_each: int, what: str) -> None:
        """Take memory for so many of something.

        Raises:
            InputProblems: it is more than is left.
        """
        self.taken += number * bytes_each
        if self._free is not None and self.taken > self._free:
            sizes = f"{self.taken / 1e9:,.1f} GB or more for {number:,} {what}, and {self._free / 1e9:,.1f} GB are free"
            raise input_problem(self._place, None, f"the simulation takes {sizes}: {self._advice}")
