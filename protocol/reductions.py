"""Names what a reduction does with the elements of all ranks. Needs no torch."""

from typing import Literal

Op = Literal["sum", "prod", "min", "max", "avg"]
