"""Batches of a source: the same on any number of processes, each of which reads its own rows.

tokens    [------------- trained on -------------|-- held out: last 5 % --]
windows    |seq_len|seq_len|seq_len| ...          seq_len + 1 tokens each, sharing one token
batch      number n: rows n B, ..., n B + B - 1 of the endless order; shuffled anew each epoch

Packed documents have rows of their own (`scaling.training.data.packing`); a mixture draws from all
sources by their shares, each in its own order.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import grain
import numpy as np

from scaling.meshes.errors import InputError
from scaling.training.data.packing import Row
from scaling.training.data.tokens import Mixture, Source, TokenSplit

# A batch is a copy of a few pages: two threads suffice.
PREFETCH = grain.ReadOptions(num_threads=2, prefetch_buffer_size=4)
SEEDS = 1 << 32  # of grain's shuffle: uint32

# inputs, targets: int32 [rows, seq_len]; and of packed documents segments int32, weights float32
Batch = tuple[np.ndarray, ...]
ARRAYS = ("inputs", "targets", "segments", "weights")


class _OwnRows:
    """The endless rows of a job, those of one process: `own` of each batch of `global_batch`."""

    def __init__(self, rows: Sequence[Row], global_batch: int, own: Sequence[int]):
        self.rows, self.global_batch, self.own = rows, global_batch, own

    def __len__(self) -> int:
        return len(self.rows) // self.global_batch * len(self.own)

    def __getitem__(self, index: int) -> Row:
        batch, place = divmod(index, len(self.own))
        return self.rows[batch * self.global_batch + self.own[place]]


class TrainingBatches(Iterator[Batch]):
    """Endless, deterministic batches: every training row once per epoch, then reshuffled.

    Their position is saved and restored as JSON, on any number of processes.

    Args:
        own: the rows of each batch that are drawn, ascending; None: all.
    """

    def __init__(
        self, source: Source, global_batch: int, seed: int, own: Sequence[int] | None = None
    ):
        own = range(global_batch) if own is None else own
        self._identity = order_of(source, global_batch, seed)
        rows = _OwnRows(_endless(source, seed), global_batch, own)
        dataset = grain.MapDataset.source(rows).batch(len(own))
        self._batches = iter(dataset.to_iter_dataset(PREFETCH))

    def __next__(self) -> Batch:
        return next(self._batches)

    def named(self, batch: Batch) -> dict[str, np.ndarray]:
        """The arrays of a batch by name."""
        names = ARRAYS if len(batch) != 3 else (*ARRAYS[:2], ARRAYS[-1])  # pairs have no segments
        return dict(zip(names, batch, strict=False))

    def get_state(self) -> dict[str, Any]:
        """The iterator's position as JSON, with the data and settings that it belongs to."""
        return {**self._identity, "position": self._batches.get_state()}

    def set_state(self, state: dict[str, Any]) -> None:
        """Continue after the last batch that was drawn before `get_state`.

        Raises:
            InputError: the state belongs to other data, batch, sequence length or seed.
        """
        check_order(state, self._identity)
        try:
            self._batches.set_state(state["position"])
        except (LookupError, TypeError, ValueError) as error:
            raise InputError(
                f"the saved place in the data, {state.get('position')!r:.200}, is none of grain's "
                f"({error!r:.200}); another program or version of grain wrote it"
            ) from None

    def close(self) -> None:
        """End the prefetch threads."""
        self._batches.close()


def order_of(source: Source, global_batch: int, seed: int) -> dict[str, Any]:
    """What decides the order of the sequences, as JSON."""
    return source.identity | dict(global_batch=global_batch, seq_len=source.seq_len, seed=seed)


def check_order(state: Mapping[str, Any], order: Mapping[str, Any]) -> None:
    """Raise InputError if a saved place is one in another order than `order_of` says."""
    there, ours = _kind(state), _kind(order)
    if there != ours:
        raise InputError(
            f"the saved place in the data is one in {there}, this run has {ours}: the same "
            "order cannot be continued. Restore train.data, or start a new run."
        )
    for key, here in order.items():
        if state.get(key) != here:
            raise InputError(
                f"the saved place in the data has {key} {state.get(key)}, this run has {here}: the "
                "same order cannot be continued, not even with --allow-changed-data. "
                f"Restore {key}, or start a new run."
            )


def _kind(identity: Mapping[str, Any]) -> str:
    if "sources" in identity:
        return "a mixture of sources"
    return "packed documents" if "packed_rows" in identity else "one stream of tokens"


def held_out_batches(
    source: TokenSplit, global_batch: int, count: int, own: Sequence[int] | None = None
) -> list[Batch]:
    """At most `count` fixed batches of the held-out part, spread evenly over it.

    Where there are fewer rows than places in one batch, rows repeat to fill it. `own`: see
    `TrainingBatches`.
    """
    rows = source.held_out
    count = min(count, -(-len(rows) // global_batch))
    places = count * global_batch
    indices = np.arange(places) * len(rows) // max(1, places)  # rises evenly from 0
    own = range(global_batch) if own is None else own
    batches = [[rows[int(i)] for i in part[own]] for part in indices.reshape(count, global_batch)]
    return [tuple(map(np.stack, zip(*batch, strict=True))) for batch in batches]


def _endless(source: Source, seed: int) -> grain.MapDataset:
    if isinstance(source, Mixture):
        rows = [_endless(split, seed + i) for i, split in enumerate(source.sources)]
        return grain.MapDataset.mix(rows, source.weights)
    return grain.MapDataset.source(source.train).shuffle(seed=seed % SEEDS).repeat()
