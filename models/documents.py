"""Several documents packed into one sequence, none of which sees another.

tokens      a  b  c  |  d  e  |  padding
segments    1  1  1     2  2     0  0        equal numbers, side by side: one document; 0: padding
positions   0  1  2     0  1     0  1
"""

# Dims: B batch, S sequence

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P
from jax.sharding import reshard

from scaling.models.execution import spec_of


class Documents(NamedTuple):
    """Which document each token belongs to, and its place there; int32 [B, S]."""

    segments_BS: jax.Array
    positions_BS: jax.Array

    @property
    def is_token_BS(self) -> jax.Array:
        """True where there is a token, False in padding: bool [B, S]."""
        return self.segments_BS != 0


def documents_of(segments_BS: jax.Array, order_S: np.ndarray | None = None) -> Documents:
    """The documents of packed sequences; positions begin at 0 in each, padding included.

    `order_S`: the token at each place (`scaling.models.attention_kernels.zigzag`); None: in order.
    """
    chex.assert_rank(segments_BS, 2)
    placed, index_S = spec_of(segments_BS), jnp.arange(segments_BS.shape[1], dtype=jnp.int32)
    whole = P(placed[0], None)
    permuted = lambda x_BS, at_S: reshard(x_BS, whole).at[:, at_S].get(out_sharding=whole)
    natural_BS = segments_BS if order_S is None else permuted(segments_BS, np.argsort(order_S))
    begins_BS = natural_BS[:, 1:] != natural_BS[:, :-1]
    begins_BS = jnp.pad(begins_BS, ((0, 0), (1, 0)))
    positions_BS = index_S - jax.lax.cummax(jnp.where(begins_BS, index_S, 0), axis=1)
    if order_S is not None:
        positions_BS = reshard(permuted(positions_BS, order_S), placed)
    return Documents(segments_BS, positions_BS)


def chunk_segments(documents: Documents, chunk: int) -> jax.Array:
    """Segments of the documents cut into chunks of so many tokens: int32 [B, S], 0 in padding.

    They need no order of the sequence: a chunk's number follows from its document's and its place.
    """
    segments_BS, positions_BS = documents
    most = -(-segments_BS.shape[1] // chunk)  # chunks of a document
    return jnp.where(segments_BS != 0, segments_BS * most + positions_BS // chunk, 0)


def same_document(queries_BT: jax.Array, keys_BU: jax.Array) -> jax.Array:
    """True where a query and a key are of one document, by their segments: bool [B, T, U]."""
    return queries_BT[:, :, None] == keys_BU[:, None, :]
