"""Helpers of the tests that compute on one device."""

import functools

import jax
import numpy as np

from scaling.meshes.rules import make_rules
from scaling.meshes.shape import MeshShape
from scaling.models.execution import Execution

ONE = MeshShape()
# Least effort on LLVM's code, which would take longer to make than to run.
jit = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
FP32 = Execution(make_rules(ONE, sequence_parallel=False), compute="fp32")


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def perturbed(module):
    """Other values than the initial ones and zeros in every parameter."""
    leaves, treedef = jax.tree.flatten(module)
    return treedef.unflatten([x + 0.3 * numbers(*x.shape, seed=i) for i, x in enumerate(leaves)])
