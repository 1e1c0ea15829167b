"""What a block keeps from the forward pass for the backward pass, by name.

    none       the inputs of every operation, so that no matmul or attention is computed again
    selective  block input, q, k, v, attention output and its log-sum-exp, MLP up and gate;
               norms, activations and softmax are computed again
    full       the block input only

Gathered weights are never kept, under any name (`Execution.project`).
"""

from collections.abc import Callable
from typing import Any

import jax

from scaling.models.attention_kernels.flash import FORWARD
from scaling.models.execution import Execution

KEPT = ("query", "key", "value", "attention", "attention_statistics", "mlp_up", "mlp_gate")


def rematerialized(block: Callable, execution: Execution) -> Callable:
    """`block` under the execution's policy, to be the body of a `lax.scan`.

    `prevent_cse=False`: inside a scan the compiler cannot merge forward and backward anyway.
    """
    if execution.remat == "none":
        return block
    policy = _keep_named if execution.remat == "selective" else None
    return jax.checkpoint(block, policy=policy, prevent_cse=False)


def _keep_named(primitive: Any, *args: Any, **params: Any) -> bool:
    return primitive.name == FORWARD or _named(primitive, *args, **params)


_named = jax.checkpoint_policies.save_only_these_names(*KEPT)
