"""Every token is seen once per epoch, in an order that can be taken up."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaling.meshes.errors import InputError
from scaling.training.data.batches import TrainingBatches, held_out_batches
from scaling.training.data.tokens import Mixture, TokenSplit, Windows


def split(train, held_out, seq_len=8, vocab_size=1 << 20, name="toy"):
    windows = (Windows(part, seq_len, vocab_size, name) for part in (train, held_out))
    return TokenSplit(*windows, description=name)


def counting_source(tokens, held_out=50, seq_len=8, first=0):
    """A stream 0, 1, 2, ...: a token says where it stands."""
    stream = np.arange(first, first + tokens + held_out, dtype=np.uint32)
    return split(stream[:tokens], stream[tokens:], seq_len)


def write_tokens(path, ids, dtype="uint16"):
    np.asarray(ids, dtype).tofile(path)
    return str(path)


@pytest.mark.parametrize("id", [-100, 777, 1 << 31])
def test_an_id_that_no_sample_shows_is_caught_in_its_batch(tmp_path, id):
    """-100 marks what is to be ignored elsewhere; read as uint32 it is an id of 4 billion, and as
    int32 it would look small."""
    ids = np.zeros(1000, np.int64)
    ids[[100, 990]] = id  # trained on, and held out
    tokens = np.memmap(write_tokens(tmp_path / "a.uint32.bin", ids, "uint32"), np.uint32)
    source = split(tokens[:950], tokens[950:], 8, 500, "a.uint32.bin")
    batches = TrainingBatches(source, 100, seed=0)
    message = f"a.uint32.bin holds token id {id % (1 << 32):,}, but model.vocab_size is 500"
    with pytest.raises(InputError, match=message):
        next(batches)
    batches.close()
    with pytest.raises(InputError, match=message):
        held_out_batches(source, 2, count=3)


def test_each_epoch_sees_every_window_once_in_another_order():
    batches = TrainingBatches(counting_source(12 * 8 + 1), 4, seed=0)
    drawn = [next(batches) for _ in range(6)]
    batches.close()
    for inputs, targets in drawn:
        assert inputs.shape == (4, 8) and inputs.dtype == targets.dtype == np.int32
        assert inputs.flags.c_contiguous and targets.flags.c_contiguous
        assert np.array_equal(targets, inputs + 1)
    firsts = [inputs[:, 0] for inputs, _ in drawn]
    epochs = [np.concatenate(firsts[:3]), np.concatenate(firsts[3:])]
    for epoch in epochs:
        assert sorted(epoch) == list(range(0, 96, 8))
    assert not np.array_equal(*epochs)


def test_the_order_depends_on_the_seed_alone():
    source = counting_source(1000)
    drawn = {}
    for name, seed in {"a": 1, "again": 1, "b": 2, "long": 1 << 40}.items():
        batches = TrainingBatches(source, 8, seed)
        drawn[name] = np.stack([next(batches)[0] for _ in range(5)])
        batches.close()
    assert np.array_equal(drawn["a"], drawn["again"])
    assert not np.array_equal(drawn["a"], drawn["b"])


@settings(max_examples=12)  # each starts and ends two sets of prefetch threads
@given(before=st.integers(0, 12), after=st.integers(1, 6), seed=st.integers(0, 1 << 33))
def test_a_restored_iterator_continues_bit_for_bit(before, after, seed):
    source = counting_source(200, seq_len=16)  # 12 windows of 16: the epoch ends every third batch
    original = TrainingBatches(source, 5, seed)
    for _ in range(before):
        next(original)
    saved = json.dumps(original.get_state())
    expected = [next(original) for _ in range(after)]
    restored = TrainingBatches(source, 5, seed)
    restored.set_state(json.loads(saved))
    for batch, again in zip(expected, restored, strict=False):
        assert np.array_equal(batch, again)
    original.close()
    restored.close()


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ((counting_source(999), 4, 0), "tokens 1000, this run has 999"),
        ((counting_source(1000), 5, 0), "global_batch 4, this run has 5"),
        ((counting_source(1000, seq_len=16), 4, 0), "seq_len 8, this run has 16"),
        ((counting_source(1000), 4, 1), "seed 0, this run has 1"),
    ],
)
def test_a_place_in_other_data_is_refused(other, message):
    state = TrainingBatches(counting_source(1000), 4, 0).get_state()
    with pytest.raises(InputError, match=message):
        TrainingBatches(*other).set_state(state)


def test_held_out_batches_are_fixed_and_spread_over_the_part_never_trained_on():
    source = counting_source(1000, held_out=8 * 20 + 1)
    first, second = (held_out_batches(source, 2, count=5) for _ in range(2))
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
    source = counting_source(100, windows * 4 + 1, seq_len=4)
    batches = held_out_batches(source, global_batch, count)
    assert len(batches) == min(count, -(-windows // global_batch))
    assert all(inputs.shape == (global_batch, 4) for inputs, _ in batches)
    starts = [start for inputs, _ in batches for start in inputs[:, 0]]
    assert len(set(starts)) == min(windows, len(starts))


# Mixtures, and rows of one process


def mixed(weights=(3.0, 1.0), seq_len=8):
    """Two streams whose tokens tell which one they are of."""
    first = counting_source(500, seq_len=seq_len)
    second = counting_source(300, seq_len=seq_len, first=10_000)
    return Mixture(("first", "second"), (first, second), weights)


def drawn(batches, count):
    found = [next(batches) for _ in range(count)]
    batches.close()
    return found


def test_a_mixture_draws_by_its_shares_and_every_row_of_a_source_before_one_again():
    batches = drawn(TrainingBatches(mixed(seq_len=10), 8, seed=0), 12)
    firsts = np.concatenate([inputs[:, 0] for inputs, _ in batches])
    of_second = firsts >= 10_000
    assert of_second.sum() == len(firsts) / 4
    assert len(set(firsts[of_second])) == of_second.sum()  # 24 of its 29 windows
    assert len(set(firsts[~of_second][:49])) == 49  # all windows of the first


@pytest.mark.parametrize(
    "source", [counting_source(400, seq_len=16), mixed(seq_len=16)], ids=["stream", "mixture"]
)
@given(before=st.integers(0, 6), seed=st.integers(0, 1 << 33))
@settings(max_examples=6)
def test_processes_draw_their_own_rows_of_the_same_batches_wherever_they_go_on(
    source, before, seed
):
    whole = TrainingBatches(source, 6, seed)
    for _ in range(before):
        next(whole)
    saved = json.dumps(whole.get_state())
    expected = drawn(whole, 3)
    for own in ([0, 1, 2], [3, 4, 5], [1, 4]):
        batches = TrainingBatches(source, 6, seed, own)
        batches.set_state(json.loads(saved))
        for batch, one in zip(drawn(batches, 3), expected, strict=True):
            assert all(np.array_equal(x, y[own]) for x, y in zip(batch, one, strict=True))
    held_out = source.sources[1] if isinstance(source, Mixture) else source
    parts = [held_out_batches(held_out, 6, 2, own) for own in ([0, 1], [2, 3, 4, 5])]
    for first, second, both in zip(*parts, held_out_batches(held_out, 6, 2), strict=True):
        for x, y, z in zip(first, second, both, strict=True):
            assert np.array_equal(np.concatenate([x, y]), z)


def test_a_place_in_a_mixture_is_none_in_one_of_its_sources():
    state = TrainingBatches(mixed(), 4, 0).get_state()
    with pytest.raises(InputError, match="one in a mixture of sources, this run has one stream"):
        TrainingBatches(counting_source(500), 4, 0).set_state(state)


def test_a_place_in_another_mixture_is_refused():
    state = TrainingBatches(mixed(), 4, 0).get_state()
    with pytest.raises(InputError, match=r"weights \[3.0, 1.0\], this run has \[1.0, 1.0\]"):
        TrainingBatches(mixed((1.0, 1.0)), 4, 0).set_state(state)
