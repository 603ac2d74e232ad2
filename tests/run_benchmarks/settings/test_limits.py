"""Limits of `expect`: which numbers each form accepts, ends included, and which texts are none."""

import math

import pytest

from run_benchmarks.settings.limits import parse_limit


@pytest.mark.parametrize(
    ("text", "unit", "inside", "outside"),
    [
        (">= 560", "", [560, 1e300], [559.999]),
        ("> 560", "", [560.001], [560]),
        ("<= 3.5 us", "us", [3.5, -1], [3.6]),
        ("<3.5us", "us", [3.4], [3.5]),
        ("within 5 % of 380 GB/s", "GB/s", [361, 380, 399], [360.9, 399.1]),
        ("within 0.5% of 1e3", "", [995, 1005], [994.9, 1005.1]),
        ("380 GB/s -5 % +20 %", "GB/s", [361, 456], [360.9, 456.1]),
        ("380 -5 %", "", [361, 1e9], [360.9]),
        ("4 us +50 %", "us", [0, 6], [6.1]),
    ],
)
def test_a_limit_accepts_its_range(text: str, unit: str, inside: list[float], outside: list[float]) -> None:
    limit = parse_limit(f" {text} ")
    assert limit.unit == unit
    assert all(limit.holds(value) for value in inside) and not any(limit.holds(value) for value in outside)
    assert not limit.holds(math.nan)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("within 0 % of 380", "0 % is no tolerance; allowed: above 0 and below 100 %"),
        ("within 100 % of 380", "100 % is no tolerance"),
        ("380 -0 % +5 %", "0 % is no tolerance"),
        ("within 5 % of 0", "0 is no reference for a tolerance in percent; allowed: above 0"),
        ("within 5 % of -3", "-3 is no reference"),
        (">= 1e999", "1e999 is no number that a metric can have"),
        (">= nan", "expected a text such as"),
        ("= 5", "expected a text such as"),
        ("380", "expected a text such as"),
        ("", "expected a text such as"),
        (560, "expected a text such as"),
        (None, "expected a text such as"),
    ],
)
def test_what_is_no_limit_is_refused_with_what_is_allowed(text: object, said: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        parse_limit(text)
    assert said in str(caught.value)


def test_a_limit_in_words_has_unit_and_range() -> None:
    assert parse_limit(">= 560").in_words("GB/s") == ">= 560 GB/s"
    assert parse_limit(">= 560 GB/s").in_words("GB/s") == ">= 560 GB/s"
    assert parse_limit("380 -5 %").in_words("GB/s") == "380 -5 % (at least 361 GB/s)"
    assert parse_limit("4 us +50 %").in_words("us") == "4 us +50 % (at most 6 us)"
    assert parse_limit("within 5 % of 380").in_words("") == "within 5 % of 380 (361 to 399)"
