"""Defines the options of the templates, each template's defaults, and the check of what a user gave."""

import argparse
from collections.abc import Callable
from typing import NamedTuple

from common import units
from common.errors import MistakeList
from simulation.common.dialect import SIMAI

GPU_TYPES = ("A100", "A800", "H20", "H100", "H200", "H800", "B200", "B300", "GB200", "GB300")
SPECTRUM_X, ALIBABA_HPN, DCN, NVL = "Spectrum-X", "AlibabaHPN", "DCN+", "NVL"
TEMPLATES = (SPECTRUM_X, ALIBABA_HPN, DCN, NVL)
MAX_NODES = 2**31 - 1  # node ids are 32-bit integers in the simulators that read the file
WHOLE_FORM = "a whole number of at least 1"
RATE_FORM = "a number from 0 to below 1"
MOST_LATENCY_S = 1.0  # 200,000 km of fibre
MOST_BPS = 1e15  # far above any link


class TopologyOption(NamedTuple):
    """An option with a value: its spellings, its name in the code, how its text is checked, and its help."""

    short: str
    long: str
    name: str
    check: Callable[[str], object]
    help: str


def whole_number(text: str) -> int:
    """An integer of at least 1.

    Raises:
        ValueError: the text is none.
    """
    if not (text.isascii() and text.isdecimal()) or int(text) < 1:
        raise ValueError(WHOLE_FORM)
    return int(text)


def error_rate(text: str) -> float:
    """The share of packets that a link loses, from 0 to below 1.

    Raises:
        ValueError: the text is no such number.
    """
    try:
        rate = float(text)
    except ValueError:
        rate = -1.0
    if not 0 <= rate < 1 or not text.isascii() or any(map(str.isspace, text)):
        raise ValueError(RATE_FORM)
    return rate


def gpu_type(text: str) -> str:
    """The name of a known GPU.

    Raises:
        ValueError: it is not known.
    """
    if text not in GPU_TYPES:
        raise ValueError(f"one of {', '.join(GPU_TYPES)}")
    return text


def link_bandwidth(text: str) -> float:
    """Bits per second of a link.

    Raises:
        ValueError: it has another form, or is slower or faster than any link.
    """
    bps = units.bandwidth_bps(text)
    if not 1 <= bps <= MOST_BPS:
        raise ValueError(f"a bandwidth from 1bps to {MOST_BPS / 1e12:g}Tbps")
    return bps


def link_latency(text: str) -> float:
    """Seconds of a link's latency.

    Raises:
        ValueError: it has another form, or is longer than any link.
    """
    seconds = units.time_seconds(text)
    if seconds > MOST_LATENCY_S:
        raise ValueError(f"a latency of at most {MOST_LATENCY_S:g}s")
    return seconds


OPTIONS = (
    TopologyOption("-g", "--gpu", "gpu", whole_number, "GPUs"),
    TopologyOption("-er", "--error_rate", "error_rate", error_rate, "share of packets that a link loses"),
    TopologyOption("-gps", "--gpu_per_server", "gpu_per_server", whole_number, "GPUs of a server"),
    TopologyOption("-gt", "--gpu_type", "gpu_type", gpu_type, f"one of {', '.join(GPU_TYPES)}"),
    TopologyOption("-nsps", "--nv_switch_per_server", "nv_switch_per_server", whole_number, "NVSwitches of a server"),
    TopologyOption("-nvbw", "--nvlink_bw", "nvlink_bw", link_bandwidth, "bandwidth from a GPU to one NVSwitch"),
    TopologyOption("-nl", "--nv_latency", "nv_latency", link_latency, "latency from a GPU to an NVSwitch"),
    TopologyOption("-l", "--latency", "latency", link_latency, "latency of all other links"),
    TopologyOption("-bw", "--bandwidth", "bandwidth", link_bandwidth, "bandwidth from a NIC to its leaf"),
    TopologyOption("-asn", "--asw_switch_num", "asw_switch_num", whole_number, "leaves, as a hint; the rest decides"),
    TopologyOption("-npa", "--nics_per_aswitch", "nics_per_aswitch", whole_number, "NICs that a leaf connects"),
    TopologyOption("-psn", "--psw_switch_num", "psw_switch_num", whole_number, "spines"),
    TopologyOption("-apbw", "--ap_bandwidth", "ap_bandwidth", link_bandwidth, "bandwidth from a leaf to a spine"),
    TopologyOption("-app", "--asw_per_psw", "asw_per_psw", whole_number, "leaves that a spine can connect"),
)
_UNITS: dict[Callable[[str], object], str] = {
    link_bandwidth: ", such as 400Gbps or 50GBps",
    link_latency: ", such as 0.5us or 500ns",
}
SWITCHES = {"ro": "rail-optimised", "dt": "two leaves per GPU (dual ToR)", "dp": "a plane of spines per ToR"}

BASE = {
    "gpu": "32", "error_rate": "0", "gpu_per_server": "8", "gpu_type": "H100", "nv_switch_per_server": "1",
    "nvlink_bw": "2880Gbps", "nv_latency": "0.000025ms", "latency": "0.0005ms", "bandwidth": "400Gbps",
    "asw_switch_num": "8", "nics_per_aswitch": "64", "psw_switch_num": "64", "ap_bandwidth": "400Gbps",
    "asw_per_psw": "64",
}  # fmt: skip


class Structure(NamedTuple):
    """The structure of a network by the switches --ro, --dt and --dp, or by a template in their place."""

    rail_optimised: bool
    dual_tor: bool
    dual_plane: bool


class Given(NamedTuple):
    """The command line: the template, the structure, what the user set, and all values with the defaults."""

    template: str | None
    structure: Structure
    user: dict[str, str]
    defaults: dict[str, str]

    @property
    def values(self) -> dict[str, str]:
        """Every option's text."""
        return {**self.defaults, **self.user}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the template, its switches and every option with a value."""
    parser.add_argument("-topo", "--topology", metavar="TEMPLATE", help=f"one of {', '.join(TEMPLATES)}")
    for name, what in SWITCHES.items():
        parser.add_argument(f"--{name}", action="store_true", help=what)
    for option in OPTIONS:
        default = BASE[option.name]
        unit = _UNITS.get(option.check, "")
        text = f"{option.help}{unit} (default: {default}; a template may have another)"
        parser.add_argument(option.short, option.long, dest=option.name, metavar="X", help=text)


def read(arguments: argparse.Namespace, mistakes: MistakeList) -> Given:
    """Check each value on its own, note the mistakes, and put the template's defaults under what the user set."""
    template: str | None = arguments.topology
    if template is not None and template not in TEMPLATES:
        mistakes.add("-topo", template, f"must be one of {', '.join(TEMPLATES)}; without -topo give --ro, --dt or none")
    user = {option.name: text for option in OPTIONS if (text := getattr(arguments, option.name)) is not None}
    for option in OPTIONS:
        if option.name in user:
            sound = check(option.short, user[option.name], option.check, mistakes)
            if sound and option.check is whole_number:  # 032 is 32, in names too
                user[option.name] = str(int(user[option.name]))
    if template == NVL and arguments.dialect == SIMAI:
        template = None
    structure, defaults = _template(template, Structure(arguments.ro, arguments.dt, arguments.dp), user)
    return Given(template, structure, user, {**BASE, **defaults})


def check(flag: str, text: str, form: Callable[[str], object], mistakes: MistakeList) -> bool:
    """Whether a text has the form, else a mistake; the file's columns are separated by blanks, so none may have one."""
    try:
        form(text)
        if any(map(str.isspace, text)):
            raise ValueError("a value without blanks")
    except ValueError as error:
        mistakes.add(flag, text or "''", f"must be {error}")
        return False
    return True


def _template(name: str | None, asked: Structure, user: dict[str, str]) -> tuple[Structure, dict[str, str]]:
    """The structure of a template and where its defaults differ from BASE."""
    if name == SPECTRUM_X:
        return Structure(True, False, False), {"gpu": "4096"}
    if name == ALIBABA_HPN:
        per_spine = "120" if asked.dual_plane else "240"
        return Structure(True, True, asked.dual_plane), {
            "gpu": "15360", "bandwidth": "200Gbps", "asw_switch_num": "240", "nics_per_aswitch": "128",
            "psw_switch_num": "120", "asw_per_psw": per_spine,
        }  # fmt: skip
    if name == DCN:
        dual = {"bandwidth": "200Gbps", "nics_per_aswitch": "128"} if asked.dual_tor else {}
        return Structure(False, asked.dual_tor, False), {
            "gpu": "512", "psw_switch_num": "8", "asw_per_psw": "8", **dual,
        }  # fmt: skip
    if name == NVL:
        nic = "800Gbps" if user.get("gpu_type") == "GB300" else "400Gbps"
        return Structure(True, False, False), {
            "gpu": "72", "gpu_per_server": "72", "gpu_type": "GB200", "nv_switch_per_server": "18",
            "nvlink_bw": "400Gbps", "bandwidth": nic, "ap_bandwidth": nic, "asw_switch_num": "4",
            "nics_per_aswitch": "72", "psw_switch_num": "72", "asw_per_psw": "144",
        }  # fmt: skip
    return asked, {}
