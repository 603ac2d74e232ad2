"""Parses limits of metrics in a case's `expect`: bounds, or a reference with tolerances as in ReFrame.

">= 560"    "< 3.5 us"    "within 5 % of 380 GB/s"    "380 GB/s -5 % +20 %"
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

WORDS = "a text such as '>= 560', '< 3.5 us', 'within 5 % of 380 GB/s' or '380 GB/s -5 % +20 %'"
EXPECT_WORDS = "a dict of metrics, or of words of a device's name with such dicts"
ANY_DEVICE = ""
_NUMBER = r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?"
_UNIT = r"(?P<unit>[A-Za-z%][A-Za-z0-9/%]*)?"
_BOUND = re.compile(rf"(?P<sign>>=|<=|>|<)\s*(?P<value>{_NUMBER})\s*{_UNIT}")
_WITHIN = re.compile(rf"within\s+(?P<percent>{_NUMBER})\s*%\s*of\s+(?P<value>{_NUMBER})\s*{_UNIT}")
_TOLERANCES = re.compile(
    rf"(?P<value>{_NUMBER})\s*{_UNIT}(?:\s+-\s*(?P<below>\d+(?:\.\d*)?)\s*%)?(?:\s+\+\s*(?P<above>\d+(?:\.\d*)?)\s*%)?"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Limit:
    """The range of a metric, including its ends unless `is_open`; `unit` is "" if none is written.

    `reference`: the value that the text names, a bound or what tolerances are around.
    """

    text: str
    reference: float
    low: float = -math.inf
    high: float = math.inf
    is_open: bool = False
    unit: str = ""
    is_bound: bool = False

    def holds(self, value: float) -> bool:
        """Whether `value`, in the unit of the metric, lies in the range."""
        return self.low < value < self.high if self.is_open else self.low <= value <= self.high

    def in_words(self, unit: str) -> str:
        """The expected value with the metric's unit, and the range if the text gives it in percent."""
        after = f" {unit}" if unit else ""
        if self.is_bound:
            return self.text if self.unit else f"{self.text}{after}"
        low = "" if math.isinf(self.low) else f"{self.low:.4g}"
        high = "" if math.isinf(self.high) else f"{self.high:.4g}"
        span = f"{low} to {high}" if low and high else f"at least {low}" if low else f"at most {high}"
        return f"{self.text} ({span}{after})"


def parse_limit(text: object) -> Limit:
    """The limit in a text.

    Raises:
        ValueError: the text is no limit; the message says what is allowed.
    """
    if not isinstance(text, str):
        raise ValueError(f"expected {WORDS}")
    text = text.strip()
    if found := _BOUND.fullmatch(text):
        value, sign = _finite(found["value"]), found["sign"]
        low, high = (value, math.inf) if sign.startswith(">") else (-math.inf, value)
        ends = {"low": low, "high": high}
        return Limit(
            text=text, reference=value, **ends, is_open=len(sign) == 1, unit=found["unit"] or "", is_bound=True
        )
    if found := _WITHIN.fullmatch(text):
        share = _share(found["percent"])
        return _around(text, found["value"], share, share, found["unit"])
    found = _TOLERANCES.fullmatch(text)
    if found and (found["below"] or found["above"]):
        below, above = (None if found[name] is None else _share(found[name]) for name in ("below", "above"))
        return _around(text, found["value"], below, above, found["unit"])
    raise ValueError(f"expected {WORDS}")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is no number that a metric can have")
    return value


def _share(text: str) -> Decimal:
    percent = Decimal(text)
    if not 0 < percent < 100:
        raise ValueError(f"{text} % is no tolerance; allowed: above 0 and below 100 %")
    return percent / 100


def _around(text: str, reference: str, below: Decimal | None, above: Decimal | None, unit: str | None) -> Limit:
    """The range around a reference; a side without a tolerance is unlimited.

    In decimal arithmetic: 0.5 % above 1000 is 1005, which a float's product lies below.
    """
    if _finite(reference) <= 0:
        raise ValueError(f"{_finite(reference):g} is no reference for a tolerance in percent; allowed: above 0")
    value = Decimal(reference)
    return Limit(
        text=text,
        reference=float(value),
        low=-math.inf if below is None else float(value * (1 - below)),
        high=math.inf if above is None else float(value * (1 + above)),
        unit=unit or "",
    )


def limits_by_device(expect: Mapping[str, object]) -> dict[str, dict[str, str]]:
    """Texts of limits by metric, by words of a device's name; those for any device are under ANY_DEVICE.

    Raises:
        ValueError: a text is no limit, or a device has no words, no metrics or occurs twice; all mistakes at once.
    """
    problems: list[str] = []
    found: dict[str, dict[str, str]] = {}

    def add(device: str, metric: str, text: object, place: str) -> None:
        try:
            found.setdefault(device, {})[metric] = parse_limit(text).text
        except ValueError as error:
            problems.append(f"{place} = {text!r}: {error}")

    seen: dict[frozenset[str], str] = {}
    for key, value in expect.items():
        if not isinstance(value, dict):
            add(ANY_DEVICE, key, value, key)
            continue
        words = device_words(key)
        if not words or not value:
            problems.append(f"{key!r}: expected words of a device's name, such as 'H200', with a dict of its metrics")
        elif words in seen:
            problems.append(f"{key!r}: the same device as {seen[words]!r}")
        seen[words] = key
        for metric, text in value.items():
            add(key, metric, text, f"{key}.{metric}")
    if problems:
        raise ValueError("; ".join(problems))
    return found


def device_words(name: str) -> frozenset[str]:
    """The words of a device's name, in lower case."""
    return frozenset(re.findall(r"[a-z0-9.]+", name.lower()))


def limits_for(limits: Mapping[str, Mapping[str, str]], devices: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """The limits that apply to a run on these types of device, by the metric's folded name.

    A key applies if every device's name has all its words; of several those with the most words count.
    """
    names = [device_words(device) for device in devices]
    found: dict[str, tuple[int, tuple[str, ...]]] = {}
    for key, of_device in limits.items():
        words = device_words(key)
        if key != ANY_DEVICE and not _fits(words, names):
            continue
        for metric, text in of_device.items():
            most, texts = found.get(folded(metric), (-1, ()))
            if len(words) >= most:
                found[folded(metric)] = len(words), (*texts, text) if len(words) == most else (text,)
    return {metric: texts for metric, (_, texts) in found.items()}


def _fits(words: frozenset[str], devices: Sequence[frozenset[str]]) -> bool:
    return bool(devices) and all(words <= name for name in devices)


def folded(metric: str) -> str:
    """A metric's name without separators: `throughput_sps_raw` stands for `throughput(sps)_raw`."""
    return re.sub(r"[^a-z0-9]+", "_", metric.lower()).strip("_")
