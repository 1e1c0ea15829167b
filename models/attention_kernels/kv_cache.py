"""What one layer of attention keeps of earlier tokens, so that each is computed once."""

from typing import Any, NamedTuple

import jax


class Past(NamedTuple):
    """Keys and values [B, U, M, K], or of latent attention norm(c) and k_r [B, U, 1, R or r]; of U
    positions. In a stack of layers with one more dimension in front."""

    first: Any
    second: Any

    def with_new(self, first: jax.Array, second: jax.Array, start: jax.Array) -> "Past":
        """The past with those of the positions start, start + 1, ... put in their places."""
        put = lambda kept, new: jax.lax.dynamic_update_slice_in_dim(
            kept, new.astype(kept.dtype), start, axis=1
        )
        return Past(put(self.first, first), put(self.second, second))
