"""Tests that coverage leaves untraced tests alone, in xdist's workers too, and traces the others after them."""

import sys
import threading

import pytest

BEFORE: list[object] = []


def test_a_test_is_traced_as_it_is() -> None:
    BEFORE.append(sys.gettrace())


@pytest.mark.untraced
def test_an_untraced_one_has_no_trace_function() -> None:
    assert sys.gettrace() is None and threading.gettrace() is None


def test_the_next_one_has_it_again() -> None:
    assert [sys.gettrace()] == BEFORE
