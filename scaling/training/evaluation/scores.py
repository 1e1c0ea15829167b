"""Log-likelihoods of sequences by a trained model: the same on any mesh and in any batch.

    log p = sum over the tokens of a row of  weight x log softmax(logits)[target]

Batches are filled up with rows, and rows with tokens, whose weights are 0.
"""

# Dims: B rows at once, S tokens of a row, D model, V vocabulary; N chunks of C tokens

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P
from jax.sharding import reshard

from scaling.models.accounting.logits import loss_chunks
from scaling.models.head import shifted_terms
from scaling.models.transformer import Transformer
from scaling.run import Run
from scaling.training.gradients import Tokens

LEAST = 64  # tokens to which shorter rows are filled up; longer ones to a power of 2


class TokenRow(NamedTuple):
    """A sequence on the host: numpy [tokens]."""

    inputs: np.ndarray
    targets: np.ndarray
    segments: np.ndarray | None  # documents that are packed; None: all are one
    weights: np.ndarray  # float32, of each target


class Score(NamedTuple):
    """The log-likelihood of the tokens of a row that count."""

    log_likelihood: float  # nats
    is_greedy: bool  # True if each is the likeliest, given those before it
    tokens: int  # that count


def row_of(ids: Sequence[int] | np.ndarray, first: int) -> TokenRow:
    """A row that predicts `ids` from number `first` on, which is above 0, from those before."""
    array = np.asarray(ids, np.int32)
    counted = np.arange(1, len(array)) >= first
    return TokenRow(array[:-1], array[1:], None, counted.astype(np.float32))


def scores(model: Transformer, run: Run, rows: Iterable[TokenRow]) -> Iterator[Score]:
    """The score of each row, in order; rows of similar lengths side by side waste least.

    Args:
        run: `batch.global_batch` rows at once, of `batch.seq_len` tokens at most.
        rows: all with segments, or none.
    """
    rows, size = iter(rows), run.batch.global_batch
    mesh = jax.tree.leaves(model)[0].sharding.mesh
    while batch := list(itertools.islice(rows, size)):
        with jax.set_mesh(mesh):
            results = _scores(model, _placed(model, batch, size, run.batch.seq_len))
        for row, value, is_greedy in zip(batch, *map(np.asarray, results), strict=False):
            counted = np.count_nonzero(row.weights)
            yield Score(float(value), bool(is_greedy), int(counted))


def log_likelihoods(
    model: Transformer, run: Run, pairs: Sequence[tuple[list[int], list[int]]]
) -> list[Score]:
    """The score of each second part behind its first, in order; the longest are computed first."""
    order = sorted(range(len(pairs)), key=lambda i: -len(pairs[i][0]) - len(pairs[i][1]))
    rows = (row_of([*pairs[i][0], *pairs[i][1]], len(pairs[i][0])) for i in order)
    by_pair = dict(zip(order, scores(model, run, rows), strict=True))
    return [by_pair[i] for i in range(len(pairs))]


def _placed(model: Transformer, rows: Sequence[TokenRow], size: int, most: int) -> Tokens:
    """Rows side by side on the mesh, filled up to [size, S]."""
    longest = max(len(row.inputs) for row in rows)
    assert longest <= most, (longest, most)
    width = min(most, max(LEAST, 1 << (longest - 1).bit_length()))
    sharding = jax.NamedSharding(jax.sharding.get_mesh(), model.execution.spec("batch", None))

    def place(of_rows: Sequence[np.ndarray]) -> jax.Array:
        filled = np.zeros((size, width), of_rows[0].dtype)
        for place, row in zip(filled, of_rows, strict=False):
            place[: len(row)] = row
        return jax.device_put(filled, sharding)

    columns = ([part for part in column if part is not None] for column in zip(*rows, strict=True))
    placed: Any = (place(column) if column else None for column in columns)
    return Tokens(*placed)


@jax.jit
def _scores(model: Transformer, tokens: Tokens) -> tuple[jax.Array, jax.Array]:
    """Log-likelihoods, and whether all that counts is the likeliest: [B], on every device."""
    rules = model.execution.rules
    B, S = tokens.inputs.shape
    vocab = B // rules.mesh.batch_shards * model.config.vocab_size // rules.shards("vocab")
    chunks = loss_chunks(S, vocab)  # where logits are many
    x_BSD, _ = model.hidden_states(tokens.inputs, tokens.segments)
    cut = lambda x: jnp.moveaxis(x.reshape(B, chunks, S // chunks, *x.shape[2:]), 1, 0)

    def chunk(parts: tuple) -> tuple[jax.Array, jax.Array]:
        x_BCD, targets_BC, weights_BC = parts
        normalizer_BC, target_BC, _ = shifted_terms(model.logits(x_BCD), targets_BC)
        log_likelihood_B = (weights_BC * (target_BC - normalizer_BC)).sum(axis=1)
        return log_likelihood_B, ((target_BC >= 0) | (weights_BC == 0)).all(axis=1)

    parts = jax.tree.map(cut, (x_BSD, tokens.targets, tokens.weights))
    log_likelihood_NB, greedy_NB = jax.lax.map(chunk, parts)
    return reshard((log_likelihood_NB.sum(axis=0), greedy_NB.all(axis=0)), P())
