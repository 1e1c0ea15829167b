"""Blind: a quantum circuit on 28 qubits: 8 layers of gates and CZ, complex64.

FLOPs: a gate multiplies a 2 x 2 complex matrix with the state, 8 x 2 x 2^28 real ones, if done as a
product. Bytes: every gate reads and writes 2^28 complex64; a layer's signs once more (De Raedt et
al., arXiv 1805.04708). Counted before it was priced.
"""

import jax
import jax.numpy as jnp

import scaling as sc
from experiments.foreign.work import Work

QUBITS, LAYERS = 28, 8
GATES = QUBITS * LAYERS
WORK = Work(bytes=(GATES + LAYERS) * 2 * 8 * 2**QUBITS)
NOTE = "turns of the state's axes between gates are passes of their own"


def apply(state, gate, qubit):
    split = state.reshape(2**qubit, 2, -1)
    return jnp.einsum("ij,ajb->aib", gate, split).reshape(-1)


@jax.jit
def run(state, gates):
    bits = jnp.arange(2**QUBITS, dtype=jnp.uint32)
    signs = 1 - 2 * (jax.lax.population_count(bits & (bits >> 1)) % 2).astype(jnp.float32)
    for layer in range(LAYERS):
        for qubit in range(QUBITS):
            state = apply(state, gates[layer, qubit], qubit)
        state = state * signs
    return state


def price() -> sc.Prediction:
    state = jax.ShapeDtypeStruct((2**QUBITS,), jnp.complex64)
    gates = jax.ShapeDtypeStruct((LAYERS, QUBITS, 2, 2), jnp.complex64)
    return sc.predict_step(run, state, gates, cluster="dgx-h100")
