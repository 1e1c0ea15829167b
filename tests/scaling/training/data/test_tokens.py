"""Any text or file of ids becomes one stream of tokens; what cannot is named."""

import os
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.meshes.errors import InputError
from scaling.training.data.sources import open_source
from scaling.training.data.token_file import TokenFile
from scaling.training.data.tokenizer import BYTES
from scaling.training.data.tokens import TokenSplit, Windows, fingerprint


def write_tokens(path, ids, dtype="uint16"):
    np.asarray(ids, dtype).tofile(path)
    return str(path)


def test_the_standard_library_is_there_without_a_download_and_always_the_same():
    first, second = (open_source("stdlib", 256, 128) for _ in range(2))
    assert np.array_equal(first.train.tokens, second.train.tokens)
    assert len(first.train.tokens) > 5_000_000
    text = np.asarray(first.train.tokens).tobytes()
    assert b"class OrderedDict(dict):" in text
    assert b"import pytest" not in text  # nobody else's packages
    assert "documents" in first.description and "standard library" in first.description


@pytest.mark.parametrize(("count", "seq_len", "held_out"), [(1000, 8, 50), (100, 20, 21)])
def test_the_last_twentieth_or_one_whole_window_is_held_out(tmp_path, count, seq_len, held_out):
    ids = np.arange(count)
    source = open_source(write_tokens(tmp_path / "a.bin", ids), 1000, seq_len)
    assert np.array_equal(source.train.tokens, ids[:-held_out])
    assert np.array_equal(source.held_out.tokens, ids[-held_out:])


def test_a_folder_is_read_in_sorted_order_without_hidden_and_binary_files(tmp_path):
    texts = {"b.md": "second é", "a.txt": "first", "sub/c.py": "third", ".git/x": "no", ".y": "no"}
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "image.png").write_bytes(b"\x89PNG\0\0")
    (tmp_path / "latin1.txt").write_bytes("é".encode("latin-1"))
    source = open_source(str(tmp_path), 256, 2)
    everything = np.concatenate([source.train.tokens, source.held_out.tokens])
    assert BYTES.decode(everything) == "first\0second é\0third"
    assert "3 documents" in source.description
    assert "2 binary files skipped" in source.description
    one = open_source(str(tmp_path / "b.md"), 256, 2)
    assert one.description.startswith("1 documents, 9 bytes")


@pytest.mark.parametrize(
    ("name", "vocab_size", "dtype"),
    [
        ("a.bin", 65_536, "uint16"),
        ("a.bin", 65_537, "uint32"),
        ("a.uint32.bin", 1000, "uint32"),
        ("a.uint16.bin", 100_000, "uint16"),
    ],
)
def test_the_width_of_a_token_follows_from_the_vocabulary_or_the_name(
    tmp_path, name, vocab_size, dtype
):
    source = open_source(write_tokens(tmp_path / name, range(500), dtype), vocab_size, 8)
    assert isinstance(source.train.tokens, TokenFile)  # which reads what it is asked for
    assert source.train.tokens.dtype == dtype
    assert np.array_equal(source.train.tokens[:9], range(9))


@pytest.mark.parametrize(
    ("name", "contents", "message"),
    [
        ("empty.bin", b"", "has 0 bytes"),
        ("odd.bin", b"abc", "3 bytes: not a whole, positive number of uint16 tokens of 2 bytes"),
        ("odd.uint32.bin", b"abcdef", "6 bytes: .* uint32 tokens of 4 bytes"),
        ("short.bin", bytes(34), "has 17 tokens; sequences of seq_len 8 need at least 18"),
        ("big.bin", b"\xff\xff" * 99, "token id 65,535, but model.vocab_size is 500"),
        ("empty.txt", b"", "no text in"),
        ("binary.txt", b"text\0text", "binary file .9 bytes, not UTF-8 text.*must end in .bin"),
        ("latin.txt", b"caf\xe9", "binary file"),
        ("short.txt", b"hello", "has 5 tokens"),
    ],
)
def test_a_file_that_cannot_be_used_says_why_with_numbers(tmp_path, name, contents, message):
    (tmp_path / name).write_bytes(contents)
    with pytest.raises(InputError, match=message):
        open_source(str(tmp_path / name), 500, 8)


def test_a_file_that_is_cut_while_it_is_read_is_an_error_with_numbers(tmp_path):
    """A memory map would end the process."""
    path = Path(write_tokens(tmp_path / "a.bin", range(1000)))
    rows = open_source(str(path), 1000, 8).train
    os.truncate(path, 100)
    assert rows[5][0].tolist() == list(range(40, 48))
    for index in (6, 100):
        with pytest.raises(InputError, match="a.bin was cut .* 100 bytes, and .* are wanted"):
            rows[index]


def test_a_missing_path_names_the_nearest_choice(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shakespeare.txt").write_text("x")
    with pytest.raises(InputError, match="did you mean 'shakespeare.txt'"):
        open_source("shakespear.txt", 256, 8)
    with pytest.raises(InputError, match="did you mean 'stdlib'"):
        open_source("stdlb", 256, 8)
    missing = tmp_path / "token.bin"
    write_tokens(tmp_path / "tokens.bin", range(9))
    with pytest.raises(InputError, match=re.escape(f"did you mean '{tmp_path / 'tokens.bin'}'")):
        open_source(str(missing), 100, 8)


def test_text_that_cannot_be_used_says_why(tmp_path, monkeypatch):
    def refuse(path, mode="r"):
        raise PermissionError(13, "Permission denied", str(path))

    with pytest.raises(InputError, match="needs model.vocab_size >= 256; the model has 255"):
        open_source("stdlib", 255, 8)
    (tmp_path / "tokens.bin").write_bytes(bytes(100))
    with pytest.raises(InputError, match=r"no text in .*1 binary files skipped"):
        open_source(str(tmp_path), 256, 8)
    (tmp_path / "secret.txt").write_text("x" * 100)
    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(InputError, match="cannot be read: .*Permission denied"):
        open_source(str(tmp_path), 256, 8)


@given(st.text())
def test_text_comes_back_from_its_bytes(text):
    ((tokens, starts),) = BYTES.encode([text])
    assert tokens.dtype == np.int32
    assert BYTES.decode(tokens) == text
    assert starts.tolist() == [i for i, letter in enumerate(text) for _ in letter.encode()]


def test_what_is_no_text_reads_as_the_replacement_character():
    assert BYTES.decode([104, 105, 300, 0xC3]) == "hi\ufffd\ufffd"


# Is it the same on every host?


def streams(train, held_out=(1, 2, 3)):
    parts = (np.array(ids, np.uint16) for ids in (train, held_out))
    return TokenSplit(*(Windows(ids, 8, 500, "toy") for ids in parts), description="toy")


@given(st.lists(st.integers(0, 499), min_size=2, max_size=50), st.data())
def test_another_token_or_another_length_is_another_fingerprint(ids, data):
    place = data.draw(st.integers(0, len(ids) - 1))
    changed = [*ids[:place], (ids[place] + 1) % 500, *ids[place + 1 :]]
    known = fingerprint(streams(ids)).tolist()
    assert fingerprint(streams(ids)).tolist() == known
    assert fingerprint(streams(changed)).tolist() != known
    assert fingerprint(streams(ids[:-1])).tolist() != known
    assert fingerprint(streams(ids, ids)).tolist() != known


def test_a_fingerprint_reads_a_part_of_a_long_stream_only(tmp_path):
    """Other files of one length differ nearly everywhere; a single token may be missed."""
    long = np.zeros(3_000_000, np.uint16)
    one = long.copy()
    one[100_000] = 1  # between the first and the second sample
    assert fingerprint(streams(long)).tolist() == fingerprint(streams(one)).tolist()
    assert fingerprint(streams(long)).tolist() != fingerprint(streams(long + 1)).tolist()
