"""Secrets in files of any size and form are masked, in bounded memory."""

import hashlib
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.masking import mask_output
from run_benchmarks.console.command_line import ROOT
from run_benchmarks.rounds import masked_files
from run_benchmarks.rounds.masked_files import mask_files, places

SECRETS = ("sixteen letters!", "hf_0123456789")
TOLD_BY_PLACE = ("abcdefgh", "password", "0123456789")
MASKS = re.compile(r"(?:\*\*\*)+")
WORDS = st.sampled_from(
    [*SECRETS, "token=abcdefgh", "http://me:password@host", "https://0123456789@host", "x", "\r", " ", "\n", "ü", "="]
)


@given(st.lists(WORDS, max_size=60), st.integers(40, 80), st.sampled_from(["", " "]), st.booleans())
@settings(deadline=None, max_examples=150)
def test_in_pieces_as_in_one(
    tmp_path_factory: pytest.TempPathFactory, words: list[str], piece: int, separator: str, by_grep: bool
) -> None:
    """Pieces of 40 to 80 bytes, far smaller than in earnest, so that every secret is cut somewhere."""
    folder = tmp_path_factory.mktemp("masked")
    text = separator.join(words)
    (folder / "log").write_bytes(text.encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(masked_files, "PIECE_BYTES", piece)
        patch.setattr(masked_files, "MARGIN_BYTES", 40)
        patch.setattr(masked_files, "SEARCHED_BYTES", 0 if by_grep else 1 << 20)
        before = (folder / "log").stat().st_ino
        masked = mask_files(folder, SECRETS)
    data = (folder / "log").read_bytes()
    assert masked == ({"log": hashlib.sha256(data).hexdigest()} if data != text.encode() else {})
    assert ((folder / "log").stat().st_ino == before) == (not masked)
    kept = data.decode(errors="replace")
    assert not any(secret in kept for secret in SECRETS)
    # A blank inside a secret ends no word: the secret is part of what follows `token=`.
    longest = max(map(len, text.replace(SECRETS[0], "x" * len(SECRETS[0])).split()), default=0)
    whole = mask_output(text, SECRETS)
    assert longest > 40 or all(kept.count(part) <= whole.count(part) for part in TOLD_BY_PLACE)
    # Where words stand side by side, a piece may begin with one and mask it where the whole would not.
    assert not separator or MASKS.sub("***", kept) == MASKS.sub("***", whole)


def test_a_secret_on_the_seam_of_a_line_without_end(tmp_path: Path) -> None:
    piece, margin = masked_files.PIECE_BYTES, masked_files.MARGIN_BYTES
    for secret in (SECRETS[1], "token=abcdefgh"):
        for at in (piece - margin - 3, piece - margin, piece - 3):
            (tmp_path / "log").write_text("x" * (at - 1) + "," + secret + "," + "x" * piece)
            assert list(mask_files(tmp_path, SECRETS)) == ["log"]
            kept = (tmp_path / "log").read_text()
            assert kept.count("***") == 1 and "0123456789" not in kept and "abcdefgh" not in kept


LARGE = """
import resource, sys
from pathlib import Path
from run_benchmarks.rounds.masked_files import mask_files
mask_files(Path(sys.argv[1]), ["warm-up-secret"])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
(Path(sys.argv[1]) / "log").write_bytes(b"")
with (Path(sys.argv[1]) / "log").open("wb") as file:
    for _ in range(100):
        file.write(b"x" * 1_000_000)
    file.write(b"a secret of ours")
masked = mask_files(Path(sys.argv[1]), ["secret of ours"])
print(list(masked), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.parametrize("searched", [0, 1 << 20])
@pytest.mark.parametrize(
    "text",
    ["to\N{KELVIN SIGN}en=abcdefgh", "TOKEN=abcdefgh", "http://me:password@host", "\udcff" + SECRETS[0], *SECRETS],
)
def test_what_output_has_masked_is_masked_in_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, searched: int
) -> None:
    monkeypatch.setattr(masked_files, "SEARCHED_BYTES", searched)
    (tmp_path / "log").write_text(text, encoding="utf-8", errors="surrogateescape")
    mask_files(tmp_path, SECRETS)
    kept = (tmp_path / "log").read_text(encoding="utf-8", errors="surrogateescape")
    assert kept == mask_output(text, SECRETS) != text


def test_grep_finds_the_places_that_an_independent_search_finds(tmp_path: Path) -> None:
    text = b"\xff\nToken=1\n" + b"x" * 3_000_000 + b"\npat'2 \xe2\x84\xaa\n\ntoken=3"
    (tmp_path / "log").write_bytes(text)
    found = [match.start() for match in re.finditer(rb"(?i)token=|pat'|\xe2\x84\xaa", text)]
    with places(tmp_path / "log", [b"token=", b"pat'", "\N{KELVIN SIGN}".encode()]) as places_:
        assert places_ is not None, "the machine of the tests has GNU grep"
        assert found == [at for at in sorted({*found, 0, 5, len(text) - 1}) if places_.within(at, at + 1)]


def test_bytes_that_are_no_text_are_kept_around_a_secret(tmp_path: Path) -> None:
    junk = bytes(range(1, 256))
    (tmp_path / "log").write_bytes(junk + b"\n" + SECRETS[1].encode() + b"\n" + junk)
    mask_files(tmp_path, SECRETS)
    assert (tmp_path / "log").read_bytes() == junk + b"\n***\n" + junk


def test_a_line_of_100_megabytes_takes_little_memory(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", LARGE, str(tmp_path)]
    answer = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert answer.startswith("['log'] ") and int(answer.split()[-1]) < 30_000  # kilobytes
    with (tmp_path / "log").open("rb") as file:
        file.seek(-8, 2)
        assert file.read() == b"xxxa ***"
