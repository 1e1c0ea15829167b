"""Next-token batches of a token stream, the same on every process.

tokens    [------------- trained on -------------|-- held out: last 5 % --]
windows    |seq_len|seq_len|seq_len| ...          seq_len + 1 tokens each, sharing one token
batch      shuffled anew each epoch, `global_batch` windows -> inputs, targets
"""

from collections.abc import Iterator
from typing import Any

import grain
import numpy as np

from scaling.meshes.errors import InputError
from scaling.train.data.tokens import TokenSource, check_ids

PREFETCH_THREADS, PREFETCH_BATCHES = 2, 4  # a batch is a copy of a few pages: two threads suffice

Batch = tuple[np.ndarray, np.ndarray]  # inputs, targets: int32 [global_batch, seq_len]


class Windows:
    """Non-overlapping windows of `seq_len` tokens, each with the token that follows it."""

    def __init__(self, tokens: np.ndarray, seq_len: int):
        self.tokens, self.seq_len = tokens, seq_len

    def __len__(self) -> int:
        return (len(self.tokens) - 1) // self.seq_len

    def __getitem__(self, index: int) -> np.ndarray:
        start = index * self.seq_len
        return self.tokens[start : start + self.seq_len + 1].astype(np.int32)


def _inputs_and_targets(windows: np.ndarray) -> Batch:
    """[n, seq_len + 1] -> two contiguous [n, seq_len], the second one token ahead."""
    return np.ascontiguousarray(windows[:, :-1]), np.ascontiguousarray(windows[:, 1:])


class TrainingBatches(Iterator[Batch]):
    """Endless, deterministic batches: every training window once per epoch, then reshuffled.

    Their position is saved and restored as JSON.
    """

    def __init__(self, source: TokenSource, global_batch: int, seq_len: int, seed: int):
        windows = Windows(source.train, seq_len)
        self._source = source
        self._identity = dict(
            tokens=len(source.train), global_batch=global_batch, seq_len=seq_len, seed=seed
        )
        options = grain.ReadOptions(
            num_threads=PREFETCH_THREADS, prefetch_buffer_size=PREFETCH_BATCHES
        )
        shuffled = grain.MapDataset.source(windows).shuffle(seed=seed % (1 << 32))  # grain: uint32
        self._batches = iter(shuffled.repeat().batch(global_batch).to_iter_dataset(options))

    def __next__(self) -> Batch:
        windows = next(self._batches)
        check_ids(windows, self._source.vocab_size, self._source.description)
        return _inputs_and_targets(windows)

    def get_state(self) -> dict[str, Any]:
        """The iterator's position as JSON, with the data and settings that it belongs to."""
        return {**self._identity, "position": self._batches.get_state()}

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue after the last batch that was drawn before `get_state`.

        Raises:
            InputError: the state belongs to other data, batch, sequence length or seed.
        """
        for key, here in self._identity.items():
            if state.get(key) != here:
                raise InputError(
                    f"the saved place in the data has {key} {state.get(key)}, this run has {here}: "
                    f"the same order cannot be continued. Restore {key}, or start a new run."
                )
        self._batches.set_state(state["position"])

    def close(self) -> None:
        """End the prefetch threads."""
        self._batches.close()


def held_out_batches(
    source: TokenSource, global_batch: int, seq_len: int, count: int
) -> list[Batch]:
    """At most `count` fixed batches of the held-out part, spread evenly over it.

    Where there are fewer windows than places in one batch, windows repeat to fill it.
    """
    windows = Windows(source.held_out, seq_len)
    count = min(count, -(-len(windows) // global_batch))
    places = count * global_batch
    indices = np.arange(places) * len(windows) // max(1, places)  # rises evenly from 0
    drawn = [windows[index] for index in indices.tolist()]
    for window in drawn:
        check_ids(window, source.vocab_size, source.description)
    firsts = range(0, places, global_batch)
    return [_inputs_and_targets(np.stack(drawn[i : i + global_batch])) for i in firsts]
