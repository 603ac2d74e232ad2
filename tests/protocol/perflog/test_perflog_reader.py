"""Finding PerfLog lines in a stream: the same ones as line by line, however it is cut, in bounded memory."""

import io
import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from protocol.perflog import PREFIX, FoundLine, LineFinder, find_lines

PIECES = st.sampled_from(
    [
        "[PerfLog] ",
        "[PerfLog] {",
        "[PerfLog]",
        "[Perf",
        "Log] ",
        "{",
        "}",
        "\n",
        "\r",
        "[",
        " ",
        "bar 50 %",
        "\n[PerfLog] x",
    ]
)


def line_by_line(text: str) -> list[str]:
    """The definition: whole lines that begin with the prefix, or hold it before an object, from it on."""
    found = []
    for line in text.split("\n")[:-1]:
        start = 0 if line.startswith(PREFIX) else line.find(PREFIX + "{")
        if start >= 0:
            found.append(line[start:])
    return found


@given(st.lists(PIECES, max_size=40).map("".join), st.lists(st.integers(1, 12), max_size=30))
def test_the_same_lines_however_the_stream_is_cut(text: str, sizes: list[int]) -> None:
    finder, data, found = LineFinder(), text.encode(), []
    for size in sizes:
        found += list(finder.feed(data[:size]))
        data = data[size:]
    found += list(finder.feed(data))
    assert [line.text for line in found] == line_by_line(text)
    rest, last = finder.rest(), text.rpartition("\n")[2]
    if rest is not None:
        assert last.endswith(rest.text) and rest.text.startswith("[PerfLog]")
    else:
        assert not last.endswith("[PerfLog]") and line_by_line(last + "\n") == []


def test_of_a_line_that_is_too_long_the_beginning_is_kept_and_the_next_is_found() -> None:
    finder = LineFinder(max_bytes=20)
    lines = list(finder.feed(b"[PerfLog] " + b"a" * 5)) + list(finder.feed(b"b" * 20 + b"\n[PerfLog] c\n"))
    assert lines == [FoundLine(b"[PerfLog] aaaaabbbbb", 15), FoundLine(b"[PerfLog] c")]
    assert finder.rest() is None


def test_memory_does_not_grow_with_lines_that_do_not_end() -> None:
    """A progress bar of 64 MB, ordinary and behind a prefix."""
    tracemalloc.start()
    try:
        for beginning in (b"", b"[PerfLog] {"):
            finder = LineFinder(max_bytes=1 << 16)
            assert list(finder.feed(beginning)) == []
            for _ in range(1024):
                assert list(finder.feed(b"\r 50 %|#####     |" * 3641)) == []
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20


def test_a_file_is_read_in_pieces() -> None:
    finder = LineFinder()
    data = b"x" * (3 << 20) + b"\n[PerfLog] {}\n" + b"y" * (2 << 20) + b"[PerfLog] {"
    assert [line.text for line in find_lines(io.BytesIO(data), finder)] == ["[PerfLog] {}"]
    assert finder.rest() == FoundLine(b"[PerfLog] {")
