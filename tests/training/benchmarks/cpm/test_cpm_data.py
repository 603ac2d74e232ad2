"""CPM's text through sentencepiece: what is read, and that broken files are named."""

import importlib.util
import io
import re
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import sentencepiece

from tests.training.benchmarks.driver.training.tiny import benchmark_of, config_of
from training.benchmarks.cpm.pytorch.data import Tokenizer
from training.benchmarks.driver.training.benchmark import DataSets
from training.benchmarks.driver.training.data.data_error import DataError
from training.benchmarks.driver.workload.usage import UnusableSettingsError

NEWLINE = "\u2583"  # CPM's character for it
SENTENCES = ["今天 天气 很好 我们 去 公园", "人工智能 改变 世界", "这本书 很 有趣 我 推荐 给 你", "天气 世界 公园 有趣"]


@pytest.fixture(scope="module")
def vocabulary() -> bytes:
    """A small model of the true kind, trained here."""
    stream = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(SENTENCES * 20),
        model_writer=stream,
        vocab_size=60,
        hard_vocab_limit=False,
        user_defined_symbols=["<eod>", NEWLINE],
        minloglevel=2,
    )
    return stream.getvalue()


@pytest.fixture
def words(monkeypatch: pytest.MonkeyPatch) -> None:
    """jieba's interface, where jieba is not installed: words, spaces and newlines."""
    if importlib.util.find_spec("jieba") is None:
        jieba_like = types.ModuleType("jieba")
        jieba_like.__dict__.update(lcut=re.compile(r"\s|\S+").findall, setLogLevel=lambda level: None)
        monkeypatch.setitem(sys.modules, "jieba", jieba_like)


@pytest.fixture
def data_dir(tmp_path: Path, vocabulary: bytes, words: None) -> Path:
    (tmp_path / "chinese_vocab.model").write_bytes(vocabulary)
    (tmp_path / "train.txt").write_text("\n".join([SENTENCES[0] * 4, "", *SENTENCES[1:]]) + "\n", encoding="utf-8")
    (tmp_path / "valid.txt").write_text(SENTENCES[1] + "\n", encoding="utf-8")
    return tmp_path


def _open(folder: Path, **settings: Any) -> DataSets:
    return benchmark_of("cpm").open_files(config_of("cpm", data="files", **settings), folder)


def test_documents_become_padded_pieces_that_end(data_dir: Path) -> None:
    tokenizer = Tokenizer(data_dir / "chinese_vocab.model", 64)
    documents = [tokenizer.encode(text + "\n") for text in (SENTENCES[0] * 4, *SENTENCES[1:])]
    newline = tokenizer.encode("\n")[-2]
    assert all(tokens[-2:] == [newline, tokenizer.end] for tokens in documents)
    assert newline != tokenizer.encode("天气")[-2], "the newline is a token of its own"
    pieces = [tokens[begin : begin + 17] for tokens in documents for begin in range(0, len(tokens), 17)]
    pieces = [piece for piece in pieces if len(piece) > 1]
    train = _open(data_dir).train
    assert len(train) == len(pieces) > len(documents), "the first is longer than a piece"
    batch = train[list(range(len(pieces)))]
    for row, piece in enumerate(pieces):
        assert batch["tokens"][row, : len(piece)].tolist() == piece
        assert batch["tokens"][row, len(piece) :].eq(tokenizer.end).all()
        assert batch["loss_mask"][row].tolist() == [1.0] * (len(piece) - 1) + [0.0] * (17 - len(piece))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("train.txt", None, r"train\.txt: no such file"),
        ("valid.txt", None, r"valid\.txt: no such file"),
        ("chinese_vocab.model", None, r"chinese_vocab\.model: no such file"),
        ("chinese_vocab.model", b"", r"chinese_vocab\.model: no sentencepiece model"),
        ("chinese_vocab.model", b"no model", r"chinese_vocab\.model: no sentencepiece model"),
        ("train.txt", b"\xff\xfe\xfa", r"train\.txt: no readable UTF-8 text"),
        ("train.txt", b"\n\n", r"train\.txt: has no document"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(data_dir: Path, name: str, content: bytes | None, message: str) -> None:
    (data_dir / name).unlink()
    if content is not None:
        (data_dir / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        _open(data_dir)


def test_pieces_are_as_long_as_the_case_says(data_dir: Path) -> None:
    (data_dir / "train.txt").write_text(SENTENCES[0] * 40 + "\n", encoding="utf-8")
    batch = _open(data_dir, seq_length=200, max_position_embeddings=1024).train[[0]]
    assert batch["tokens"].shape == (1, 201) and batch["loss_mask"].sum() == 200


def test_a_byte_order_mark_and_other_line_ends_are_no_text(data_dir: Path) -> None:
    expected = _open(data_dir).evaluation[[0]]["tokens"].tolist()
    (data_dir / "valid.txt").write_bytes(b"\xef\xbb\xbf" + SENTENCES[1].encode() + b"\r\n")
    assert _open(data_dir).evaluation[[0]]["tokens"].tolist() == expected


def test_a_vocabulary_that_is_too_large_or_without_end_is_named(data_dir: Path) -> None:
    with pytest.raises(DataError, match=r"has \d+ tokens; expected up to vocab_size = 20"):
        _open(data_dir, vocab_size=20)
    stream = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(SENTENCES * 20),
        model_writer=stream,
        vocab_size=60,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    (data_dir / "chinese_vocab.model").write_bytes(stream.getvalue())
    with pytest.raises(DataError, match="has no token <eod>"):
        _open(data_dir)


def test_a_missing_package_is_named(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jieba", None)
    with pytest.raises(UnusableSettingsError, match="needs the Python package jieba"):
        _open(data_dir)
