"""Runs one clock for all samplers: ticks at start + k * interval, without drift, until there is a reason to end."""

import resource
import time
from array import array
from collections.abc import Callable, Sequence
from typing import Any

from monitors.ending import Ending
from monitors.power import PowerMeter
from monitors.sampler import Sampler, Unavailable, Values
from monitors.sink import SampleSink, Stamp, now

# A last sample sooner than this after the previous one would divide by almost nothing.
_SHORTEST_S = 0.05


class Loop:
    """Runs samplers into a sink. A sampler that fails is reported once, tried again, and never ends the others."""

    def __init__(self, samplers: Sequence[Sampler], sink: SampleSink, interval_s: float) -> None:
        self._samplers = list(samplers)
        self.lacking: dict[type[Sampler], str] = {}  # what this host lacks, as found while sampling
        self._meters = [sampler for sampler in samplers if isinstance(sampler, PowerMeter)]
        self._sink = sink
        self._interval_s = interval_s
        self._lateness_s = array("d")
        self._ticks = 0
        self._skipped = 0
        self._errors: dict[str, int] = {}
        self._reported: set[tuple[str, str]] = set()

    def run(self, ending: Ending) -> None:
        """Sample until `ending` gives a reason to stop; then take a last sample and write the summary record."""
        started, busy = time.monotonic(), time.process_time()
        tick = 1
        while (reason := ending.wait(started + tick * self._interval_s)) is None:
            late = time.monotonic() - (started + tick * self._interval_s)
            self._lateness_s.append(late)
            self._sample_all()
            following = int((time.monotonic() - started) / self._interval_s) + 1
            self._skipped += following - tick - 1
            tick = following
        last = started + (tick - 1) * self._interval_s
        self._sample_last(rare_alone=time.monotonic() - last < _SHORTEST_S)
        elapsed = time.monotonic() - started
        self._summarize(reason, elapsed, time.process_time() - busy)

    def _sample_all(self) -> None:
        self._ticks += 1
        for sampler in list(self._samplers):
            self._sample(sampler, sampler.sample)

    def _sample_last(self, *, rare_alone: bool) -> None:
        self._ticks += not rare_alone
        for sampler in list(self._samplers):
            if sampler.is_rare or not rare_alone:
                self._sample(sampler, sampler.sample_last)

    def _sample(self, sampler: Sampler, read: Callable[[], Values | None]) -> None:
        stamp = now()
        try:
            values = read()
            rows = None if values is None else sampler.rows(values)
        except Unavailable as lack:
            self._samplers.remove(sampler)
            self.lacking[type(sampler)] = str(lack)
            report_unavailable(self._sink, stamp, sampler.source, sampler.meter, sampler.log, str(lack))
            return
        except Exception as error:  # noqa: BLE001 - a vendor's probe may raise anything; it must not end the others
            self._report(stamp, sampler, f"{type(error).__name__}: {error}")
            return
        if values is not None and rows is not None:
            self._sink.record(stamp, sampler.source, values=values)
            self._sink.rows(stamp, sampler.log, rows)

    def _report(self, stamp: Stamp, sampler: Sampler, error: str) -> None:
        name = f"{sampler.source}/{sampler.meter}" if sampler.meter else sampler.source
        self._errors[name] = self._errors.get(name, 0) + 1
        if (name, error) in self._reported:
            return
        self._reported.add((name, error))
        fields = {"meter": sampler.meter} if sampler.meter else {}
        self._sink.record(stamp, sampler.source, **fields, error=error)
        self._sink.comment(sampler.log, f"error: {error}")

    def _summarize(self, reason: str, elapsed: float, busy: float) -> None:
        energy = {
            meter.meter: {"joules": round(meter.joules, 3), "method": meter.method}
            for meter in self._meters
            if meter.joules is not None
        }
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        used = busy + children.ru_utime + children.ru_stime
        summary: dict[str, Any] = {
            "reason": reason,
            "samples": self._ticks,
            "skipped": self._skipped,
            "interval_s": self._interval_s,
            "elapsed_s": round(elapsed, 3),
            "lateness_ms": lateness(self._lateness_s),
            "cpu_s": round(used, 4),
            "cpu_percent_of_core": round(100 * used / elapsed, 3),
            "energy": energy,
            "errors": self._errors,
        }
        self._sink.record(now(), "monitor", summary=summary)


def lateness(seconds: Sequence[float]) -> dict[str, float] | None:
    """{"p50", "p95", "max"}, in milliseconds, of the delay of the ticks in `seconds`; None without a tick."""
    if not seconds:
        return None
    ordered = sorted(seconds)
    ranks = {"p50": 0.50, "p95": 0.95, "max": 1.0}
    return {name: round(1000 * ordered[round(rank * (len(ordered) - 1))], 3) for name, rank in ranks.items()}


def report_unavailable(sink: SampleSink, stamp: Stamp, source: str, meter: str, log: str, reason: str) -> None:
    """Report once, in both forms of the log, what this host lacks."""
    sink.record(stamp, source, **({"meter": meter} if meter else {}), unavailable=reason)
    sink.comment(log, f"unavailable: {meter}: {reason}" if meter else f"unavailable: {reason}")
