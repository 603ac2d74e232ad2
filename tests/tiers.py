"""How thorough the tests are: make nightly draws many more samples than make test.

Whether a test belongs to make nightly alone is said by its marker `nightly`.
"""

import math
import os

from hypothesis import HealthCheck, settings

VARIABLE = "CLUSTERDYNO_NIGHTLY"
NIGHTLY = os.environ.get(VARIABLE) == "1"
EXAMPLES_FACTOR = 10


def samples(usual: int, nightly: int) -> range:
    """The seeds 0, 1, 2, ... of a test that draws its input: so many in make test, so many in make nightly."""
    return range(nightly if NIGHTLY else usual)


def load_profile() -> None:
    """Let hypothesis draw EXAMPLES_FACTOR times as many examples in make nightly, unless a test sets its own number.

    make test draws the same examples each time, so that a change is not judged by chance; make nightly draws others.
    A busy machine is no failure: neither a slow example nor a slow draw is one.
    """
    usual = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True, database=None)
    settings.register_profile("usual", usual)
    many = EXAMPLES_FACTOR * usual.max_examples
    settings.register_profile("nightly", usual, derandomize=False, max_examples=many)
    settings.load_profile("nightly" if NIGHTLY else "usual")


def most(draws: int, share: float) -> int:
    """So many of `draws` are exceeded by chance in one case of a thousand if each has the probability `share`."""
    return math.ceil(draws * share + 3.09 * math.sqrt(draws * share * (1 - share)))
