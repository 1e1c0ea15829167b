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


class Documents(NamedTuple):
    """Which document each token belongs to, and its place there; int32 [B, S]."""

    segments_BS: jax.Array
    positions_BS: jax.Array

    @property
    def is_token_BS(self) -> jax.Array:
        """True where there is a token, False in padding: bool [B, S]."""
        return self.segments_BS != 0


def documents_of(segments_BS: jax.Array) -> Documents:
    """The documents of packed sequences; positions begin at 0 in each, padding included."""
    chex.assert_rank(segments_BS, 2)
    index_S = jnp.arange(segments_BS.shape[1], dtype=jnp.int32)
    begins_BS = segments_BS[:, 1:] != segments_BS[:, :-1]
    begins_BS = jnp.pad(begins_BS, ((0, 0), (1, 0)))
    first_BS = jax.lax.cummax(jnp.where(begins_BS, index_S, 0), axis=1)
    return Documents(segments_BS, index_S - first_BS)


def in_chunks(documents: Documents, chunk: int | None) -> Documents:
    """The documents cut into chunks of so many tokens, each a document of its own that keeps its
    positions; None: as they are."""
    if chunk is None:
        return documents
    begins_BS = (documents.positions_BS % chunk == 0).astype(jnp.int32)
    segments_BS = jnp.where(documents.is_token_BS, jnp.cumsum(begins_BS, axis=1), 0)
    return documents._replace(segments_BS=segments_BS)


def same_document(segments_BS: jax.Array) -> jax.Array:
    """True where a query and a key are of one document: bool [B, S, S]."""
    return segments_BS[:, :, None] == segments_BS[:, None, :]
