import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.sizes import MAX_SIZES, format_size, parse_size, parse_sizes


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("8", 8),
        ("1K", 1024),
        ("4k", 4096),
        ("1M", 1 << 20),
        ("2 G", 2 << 30),
        ("1MiB", 1 << 20),
        ("64B", 64),
        ("1KiB", 1024),
    ],
)
def test_a_size(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "M", "-1", "1.5M", "1T", "0", "0K", "1 2", "1e3", "8..16"])
def test_what_is_no_size_is_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match=repr(text.strip())):
        parse_size(text)


@pytest.mark.parametrize("text", ["1KB", "16mb", "2GB"])
def test_decimal_units_are_refused_because_they_are_ambiguous(text: str) -> None:
    with pytest.raises(ValueError, match=r"1000 or 1024 is meant; write \d+[KmG] or"):
        parse_size(text)


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("1M", [1 << 20]),
        ("8..64 x2", [8, 16, 32, 64]),
        ("8..64x2", [8, 16, 32, 64]),
        ("8..64", [8, 16, 32, 64]),
        ("8 .. 100 x4", [8, 32]),
        ("1K..4K +1K", [1024, 2048, 3072, 4096]),
        ("4K, 8..16, 1M", [4096, 8, 16, 1 << 20]),
        ("1..1", [1]),
        ("8..64 *8", [8, 64]),
    ],
)
def test_lists_and_ranges(text: str, sizes: list[int]) -> None:
    assert list(parse_sizes(text)) == sizes


def test_the_full_range_of_a_gpu() -> None:
    sizes = parse_sizes("8..16G x2")
    assert (sizes[0], sizes[-1], len(sizes)) == (8, 16 << 30, 32)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("64..8", "ends below its begin"),
        ("8..64 x1", "a factor of 1"),
        ("8..64 x", "is not a size"),
        ("8..64 -2", "is not a size"),
        ("8..", "is not a size"),
        ("8,,16", "'' is not a size"),
        ("1..16G +1", f"more than {MAX_SIZES} sizes"),
    ],
)
def test_a_wrong_part_is_named(text: str, expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        parse_sizes(text)


@given(st.integers(1, 1 << 45))
def test_a_formatted_size_is_read_back(size: int) -> None:
    assert parse_size(format_size(size)) == size


def test_the_shortest_exact_form() -> None:
    assert [format_size(size) for size in (8, 1536, 1 << 20, 3 << 30, 1025)] == ["8", "1536", "1M", "3G", "1025"]
