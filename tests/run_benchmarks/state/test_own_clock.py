"""The clock counts only while this process can run: judged by a child that is really stopped, and by a set clock."""

import itertools
import signal
import subprocess
import sys
import time

from run_benchmarks.state.own_clock import GAP_SECONDS, OwnClock

CHILD = """
import sys, time
from run_benchmarks.state.own_clock import own_clock
clock = own_clock()
first = clock.now()
print("ready", flush=True)
sys.stdin.readline()
print(clock.now() - first, clock.slept)
"""


def test_a_process_that_was_stopped_leaves_that_time_out() -> None:
    argv = [sys.executable, "-c", CHILD]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None and child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        child.send_signal(signal.SIGSTOP)
        time.sleep(GAP_SECONDS + 1.0)
        child.send_signal(signal.SIGCONT)
        child.stdin.write("\n")
        child.stdin.flush()
        counted, slept = map(float, child.stdout.readline().split())
    assert slept > GAP_SECONDS and counted < GAP_SECONDS


def test_short_gaps_count() -> None:
    moments = itertools.accumulate([100.0, 0.0, GAP_SECONDS, 40.0, 1.0, 0.0])
    clock = OwnClock(lambda: next(moments))
    assert clock.now() == 100.0
    assert clock.now() == 100.0 + GAP_SECONDS
    assert clock.now() == 100.0 + GAP_SECONDS
    assert clock.now() == 101.0 + GAP_SECONDS
    assert clock.slept == 40.0
