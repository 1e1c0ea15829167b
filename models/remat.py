"""Rematerialisation: what a block saves from the forward pass for the backward pass.

    none       the inputs of every operation, so that no matmul or attention is recomputed
    selective  block input, q, k, v, attention output and its log-sum-exp, MLP up and gate;
               norms, activations and softmax are recomputed
    full       the block input only

Gathered weights are never saved (`scaling.models.sharding.project`).
"""

from collections.abc import Callable
from typing import Any

import jax

from scaling.models.attention_kernels.flash import FORWARD
from scaling.models.execution import Execution

SAVED = ("query", "key", "value", "attention", "attention_statistics", "mlp_up", "mlp_gate")


def rematerialized(block: Callable, execution: Execution) -> Callable:
    """`block` under the remat policy of the execution, as the body of a `lax.scan`.

    `prevent_cse=False`: inside a scan the compiler cannot merge forward and backward anyway.
    """
    if execution.remat == "none":
        return block
    policy = _saved if execution.remat == "selective" else None
    return jax.checkpoint(block, policy=policy, prevent_cse=False)


def _saved(primitive: Any, *args: Any, **params: Any) -> bool:
    """Named tensors, and both results of cuDNN's kernel, which no name reaches."""
    return primitive.name == FORWARD or _named(primitive, *args, **params)


_named = jax.checkpoint_policies.save_only_these_names(*SAVED)
