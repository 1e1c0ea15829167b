"""Blind: deduplicate 16 million hashes: a sort of keys with positions, neighbours, a running count.

No products. Bytes: keys and positions of 4 bytes read and written at least once by the sort (a
radix sort needs several passes: Satish et al., IPDPS 2009), and once by what follows. Counted
before it was priced.
"""

import jax
import jax.numpy as jnp

import scaling as sc
from experiments.foreign.work import Work

N = 2**24
WORK = Work(bytes=N * 8 * 2 + N * 8)
NOTE = "a sort is many passes, and the count one; the least is a single one"


@jax.jit
def deduplicate(hashes):
    positions = jnp.arange(N, dtype=jnp.int32)
    ordered, positions = jax.lax.sort((hashes, positions), num_keys=1)
    first = jnp.concatenate([jnp.ones(1, bool), ordered[1:] != ordered[:-1]])
    group = jnp.cumsum(first) - 1
    return jnp.zeros(N, jnp.int32).at[positions].set(group), first.sum()


def price() -> sc.Prediction:
    return sc.predict_step(deduplicate, jax.ShapeDtypeStruct((N,), jnp.uint32), cluster="dgx-h100")
