"""`python -m monitors`: samples this host into a folder until the round ends. See docs/explanation/architecture.md."""

import argparse
import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from monitors import nccl_log, sysinfo
from monitors.accelerator import SAMPLE_DEADLINE_S, AcceleratorMeter, AcceleratorSampler
from monitors.device_health import DeviceHealthSampler
from monitors.ending import ENDING_SIGNALS, Ending
from monitors.foreign import ForeignProcesses
from monitors.host import CpuSampler, FrequencySampler, MemorySampler, ThrottleSampler
from monitors.ipmi import IpmiMeter
from monitors.loop import Loop, report_unavailable
from monitors.ports import PortSampler
from monitors.power import RaplMeter
from monitors.sampler import Sampler, Unavailable
from monitors.sink import SampleSink, now
from vendors import BrokenVendor, UnknownVendor, Vendor, load

POWERCAP = Path("/sys/class/powercap")
USAGE_ERROR = 2

S = TypeVar("S", bound=Sampler)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the monitor. 0: ended as told; 1: its files could not be written; 2: wrong arguments."""
    options = _parser().parse_args(arguments)
    try:
        vendor = load(options.vendor)
    except (UnknownVendor, BrokenVendor) as error:
        return _complain(f"--vendor: {error}", USAGE_ERROR)
    if not options.log_dir.is_dir():
        return _complain(f"--log_dir {options.log_dir}: no such folder", USAGE_ERROR)
    # Held back until `Ending.wait` takes them; threads that start later inherit it.
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING_SIGNALS)
    deadline = time.monotonic() + options.max_seconds
    try:
        sink = SampleSink(options.log_dir)
    except FileExistsError as error:
        return _complain(f"{error.filename} is there already: each round needs a folder of its own", USAGE_ERROR)
    except OSError as error:
        return _complain(f"--log_dir {options.log_dir}: {error.strerror}", USAGE_ERROR)
    ending = Ending(options.lock, deadline)
    try:
        _monitor(options, vendor, sink, ending)
        sink.close()
    except OSError as error:
        return _complain(f"cannot write into {options.log_dir}: {error}", 1)
    finally:
        ending.close()
    return 0


def _monitor(options: argparse.Namespace, vendor: Vendor, sink: SampleSink, ending: Ending) -> None:
    started = {"interval_s": options.interval, "vendor": vendor.name, "pid": os.getpid()}
    sink.record(now(), "monitor", start=started)
    samplers = _Samplers(sink)
    samplers.open(CpuSampler, CpuSampler.log, partial(CpuSampler, per_core=options.per_core))
    samplers.open(MemorySampler, MemorySampler.log, MemorySampler)
    samplers.open(PortSampler, PortSampler.log, PortSampler)
    with contextlib.suppress(Unavailable):  # virtual machines have no clock of their own
        samplers.opened.append(FrequencySampler())
    with contextlib.suppress(Unavailable):  # few virtual machines count it: its absence is not worth a line
        samplers.opened.append(ThrottleSampler())
    accelerator = _open_accelerator(samplers, vendor, options)
    samplers.open(RaplMeter, RaplMeter.log, partial(RaplMeter, options.powercap))
    samplers.open(IpmiMeter, IpmiMeter.log, IpmiMeter)
    info = sysinfo.collect(accelerator, os.environ, vendor)
    loop = Loop(samplers.opened, sink, options.interval)
    try:
        sysinfo.write(options.log_dir, info | {"power": _machine_power(samplers.lacking)})
        loop.run(ending)
    finally:
        for sampler in samplers.opened:
            sampler.close()
    power = _machine_power(samplers.lacking | loop.lacking)
    launched = sysinfo.launched(options.log_dir)
    nccl = nccl_log.describe(options.log_dir, launched.environment)
    sysinfo.write(options.log_dir, info | {"fused": launched.fused, "nccl": nccl, "power": power})


def _machine_power(lacking: Mapping[type[Sampler], str]) -> dict[str, Any]:
    """For sys_info.json: the meters of the whole machine's power, or the reason why this host cannot measure it."""
    kinds = (RaplMeter, IpmiMeter)
    measured = [kind.meter for kind in kinds if kind not in lacking]
    if measured:
        return {"machine": measured}
    return {"machine": [], "impossible": "; ".join(f"{kind.meter}: {lacking[kind]}" for kind in kinds)}


def _open_accelerator(samplers: "_Samplers", vendor: Vendor, options: argparse.Namespace) -> dict[str, Any]:
    """Open the accelerators and their power meter; returns their description for sys_info.json."""
    log = f"{vendor.monitor_name}_monitor.log" if vendor.monitor_name else ""
    deadline = min(SAMPLE_DEADLINE_S, options.interval / 2)
    sampler = samplers.open(AcceleratorSampler, log, partial(AcceleratorSampler, vendor.open_probe, log, deadline))
    if sampler is None:
        reason = samplers.lacking[AcceleratorSampler]
        samplers.lack(AcceleratorMeter, AcceleratorMeter.log, reason)
        return {"unavailable": reason}
    samplers.open(AcceleratorMeter, AcceleratorMeter.log, partial(AcceleratorMeter, sampler))
    samplers.opened.append(ForeignProcesses(sampler, str(options.log_dir)))
    samplers.opened.append(DeviceHealthSampler(sampler))
    return sampler.describe()


class _Samplers:
    """Opens samplers, and reports once which ones this host lacks."""

    def __init__(self, sink: SampleSink) -> None:
        self.opened: list[Sampler] = []
        self.lacking: dict[type[Sampler], str] = {}
        self._sink = sink

    def open(self, kind: type[S], log: str, opener: Callable[[], S]) -> S | None:
        self._sink.header(log, kind.columns)
        try:
            sampler = opener()
        except Unavailable as lack:
            self.lack(kind, log, str(lack))
            return None
        self.opened.append(sampler)
        return sampler

    def lack(self, kind: type[Sampler], log: str, reason: str) -> None:
        self.lacking[kind] = reason
        self._sink.header(log, kind.columns)
        report_unavailable(self._sink, now(), kind.source, kind.meter, log, reason)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m monitors", description=__doc__, allow_abbrev=False)
    add = parser.add_argument
    add("--log_dir", type=Path, required=True, help="folder for the logs, monitor.jsonl and sys_info.json")
    add("--vendor", required=True, help="whose accelerators to read: a folder of vendors/")
    add(
        "--interval", type=partial(_seconds, low=0.1, high=60.0), default=1.0, help="seconds between samples, 0.1 to 60"
    )
    add("--max_seconds", type=partial(_seconds, low=0.1, high=1e7), required=True, help="ends by itself after these")
    add("--lock", type=Path, help="ends when the flock on this file, once taken, is free again")
    add("--per_core", action="store_true", help="every core's utilisation in monitor.jsonl too")
    add(
        "--powercap",
        type=Path,
        default=POWERCAP,
        help="where the host's powercap tree is mounted (default %(default)s)",
    )
    return parser


def _seconds(text: str, *, low: float, high: float) -> float:
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds") from None
    if not low <= value <= high:
        raise argparse.ArgumentTypeError(f"{text} is not between {low:g} and {high:g} seconds")
    return value


def _complain(message: str, code: int) -> int:
    print(f"monitors: {message}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
