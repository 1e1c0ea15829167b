"""Every token is seen once per epoch, in an order that can be taken up; bad data is named."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshes.errors import InputError
from scaling.train.data import (
    TokenSource,
    decode,
    encode,
    held_out_batches,
    open_source,
    training_batches,
)


def counting_source(tokens, held_out=50):
    """A stream 0, 1, 2, ...: a token says where it stands."""
    stream = np.arange(tokens + held_out, dtype=np.uint32)
    return TokenSource(stream[:tokens], stream[tokens:], 1 << 20, "counting")


def write_tokens(path, ids, dtype="uint16"):
    np.asarray(ids, dtype).tofile(path)
    return str(path)


def test_the_standard_library_is_there_without_a_download_and_always_the_same():
    first, second = (open_source("stdlib", 256, 128) for _ in range(2))
    assert np.array_equal(first.train, second.train)
    assert len(first.train) > 5_000_000
    text = first.train.tobytes()
    assert b"class OrderedDict(dict):" in text
    assert b"import pytest" not in text  # nobody else's packages
    assert "documents" in first.description and "standard library" in first.description


def test_the_last_twentieth_is_held_out(tmp_path):
    ids = np.arange(1000)
    source = open_source(write_tokens(tmp_path / "a.bin", ids), 1000, 8)
    assert np.array_equal(source.train, ids[:950])
    assert np.array_equal(source.held_out, ids[950:])


def test_a_short_stream_holds_out_one_whole_window(tmp_path):
    source = open_source(write_tokens(tmp_path / "a.bin", range(100)), 1000, 20)
    assert len(source.held_out) == 21


def test_a_folder_is_read_in_sorted_order_without_hidden_and_binary_files(tmp_path):
    texts = {"b.md": "second é", "a.txt": "first", "sub/c.py": "third", ".git/x": "no", ".y": "no"}
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "image.png").write_bytes(b"\x89PNG\0\0")
    (tmp_path / "latin1.txt").write_bytes("é".encode("latin-1"))
    source = open_source(str(tmp_path), 256, 2)
    everything = np.concatenate([source.train, source.held_out])
    assert decode(everything) == "first\0second é\0third"
    assert "3 documents" in source.description
    assert "2 binary files skipped" in source.description


def test_one_text_file_is_enough(tmp_path):
    path = tmp_path / "poem.txt"
    path.write_text("a rose is a rose is a rose")
    assert open_source(str(path), 300, 4).description.startswith("1 documents, 26 bytes")


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
    assert isinstance(source.train, np.memmap)
    assert source.train.dtype == dtype
    assert np.array_equal(source.train[:9], range(9))


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


def test_a_folder_without_text_says_what_is_in_it(tmp_path):
    (tmp_path / "tokens.bin").write_bytes(bytes(100))
    with pytest.raises(InputError, match=r"no text in .*1 binary files skipped"):
        open_source(str(tmp_path), 256, 8)


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


def test_a_file_without_permission_is_bad_input(tmp_path, monkeypatch):
    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    (tmp_path / "secret.txt").write_text("x" * 100)
    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(InputError, match="cannot be read: .*Permission denied"):
        open_source(str(tmp_path), 256, 8)


def test_text_needs_a_vocabulary_of_all_byte_values():
    with pytest.raises(InputError, match="needs model.vocab_size >= 256; the model has 255"):
        open_source("stdlib", 255, 8)


def test_an_id_out_of_range_between_the_sampled_chunks_is_caught_in_its_batch(tmp_path):
    ids = np.zeros(3_000_000, np.uint16)
    ids[100_000] = 777  # between the first and the second sampled chunk
    source = open_source(write_tokens(tmp_path / "a.bin", ids), 500, 999)
    batches = training_batches(source, 300, 999, seed=0)
    with pytest.raises(InputError, match="token id 777, but model.vocab_size is 500"):
        for _ in range(20):
            next(batches)
    batches.close()


def test_targets_are_the_inputs_one_token_ahead():
    batches = training_batches(counting_source(1000), 4, 16, seed=0)
    inputs, targets = next(batches)
    batches.close()
    assert inputs.shape == targets.shape == (4, 16)
    assert inputs.dtype == targets.dtype == np.int32
    assert inputs.flags.c_contiguous and targets.flags.c_contiguous
    assert np.array_equal(targets, inputs + 1)


def test_each_epoch_sees_every_window_once_in_another_order():
    batches = training_batches(counting_source(12 * 8 + 1), 4, 8, seed=0)
    epochs = [np.concatenate([next(batches)[0][:, 0] for _ in range(3)]) for _ in range(2)]
    batches.close()
    for epoch in epochs:
        assert sorted(epoch) == list(range(0, 96, 8))
    assert not np.array_equal(*epochs)


def test_the_order_depends_on_the_seed_alone():
    source = counting_source(1000)
    drawn = {}
    for name, seed in {"a": 1, "again": 1, "b": 2, "long": 1 << 40}.items():
        batches = training_batches(source, 8, 8, seed)
        drawn[name] = np.stack([next(batches)[0] for _ in range(5)])
        batches.close()
    assert np.array_equal(drawn["a"], drawn["again"])
    assert not np.array_equal(drawn["a"], drawn["b"])


@settings(max_examples=12)  # each starts and ends two sets of prefetch threads
@given(before=st.integers(0, 12), after=st.integers(1, 6), seed=st.integers(0, 1 << 33))
def test_a_restored_iterator_continues_bit_for_bit(before, after, seed):
    source = counting_source(200)  # 12 windows of 16: the epoch ends every third batch
    original = training_batches(source, 5, 16, seed)
    for _ in range(before):
        next(original)
    saved = json.dumps(original.get_state())
    expected = [next(original) for _ in range(after)]
    restored = training_batches(source, 5, 16, seed)
    restored.set_state(json.loads(saved))
    for batch, again in zip(expected, restored, strict=False):
        assert np.array_equal(batch, again)
    original.close()
    restored.close()


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ((counting_source(999), 4, 8, 0), "tokens 1000, this run has 999"),
        ((counting_source(1000), 5, 8, 0), "global_batch 4, this run has 5"),
        ((counting_source(1000), 4, 16, 0), "seq_len 8, this run has 16"),
        ((counting_source(1000), 4, 8, 1), "seed 0, this run has 1"),
    ],
)
def test_a_place_in_other_data_is_refused(other, message):
    state = training_batches(counting_source(1000), 4, 8, 0).get_state()
    with pytest.raises(InputError, match=message):
        training_batches(*other).set_state(state)


def test_held_out_batches_are_fixed_and_spread_over_the_part_never_trained_on():
    source = counting_source(1000, held_out=8 * 20 + 1)
    first, second = (held_out_batches(source, 2, 8, count=5) for _ in range(2))
    assert np.array_equal(first, second)
    starts = np.concatenate([inputs[:, 0] for inputs, _ in first])
    assert starts.tolist() == list(range(1000, 1160, 16))
    assert all(np.array_equal(targets, inputs + 1) for inputs, targets in first)


@given(
    windows=st.integers(1, 30),
    global_batch=st.integers(1, 12),
    count=st.integers(0, 9),
)
def test_held_out_batches_are_full_and_none_repeats_the_others(windows, global_batch, count):
    source = counting_source(100, held_out=windows * 4 + 1)
    batches = held_out_batches(source, global_batch, 4, count)
    assert len(batches) == min(count, -(-windows // global_batch))
    assert all(inputs.shape == (global_batch, 4) for inputs, _ in batches)
    starts = [start for inputs, _ in batches for start in inputs[:, 0]]
    assert len(set(starts)) == min(windows, len(starts))


@given(st.text())
def test_text_comes_back_from_its_bytes(text):
    tokens = encode(text)
    assert tokens.dtype == np.int32
    assert decode(tokens) == text


def test_what_is_no_text_reads_as_the_replacement_character():
    assert decode([104, 105, 300, 0xC3]) == "hi\ufffd\ufffd"
