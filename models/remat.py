"""Rematerialisation: what a block saves from the forward pass for the backward pass.

Which tensors that are is said by name: `scaling.models.accounting.remat`. Under "none" they are the
inputs of every operation. Gathered weights are never saved.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax

from scaling.models.accounting.remat import SavedTensors, kept_by
from scaling.models.execution import Execution

STATISTICS = "attention_statistics"  # kept with "attention"
HOST = "pinned_host"  # jax's name of the host's memory that devices copy to and from


def rematerialized(block: Callable, execution: Execution) -> Callable:
    """`block` under the remat policy of the execution, as the body of a `lax.scan`.

    `prevent_cse=False`: inside a scan the compiler cannot merge forward and backward anyway.
    """
    kept = kept_by(execution.remat)
    if kept is None:
        return block
    return jax.checkpoint(block, policy=_policy(kept) if kept.names else None, prevent_cse=False)


def _policy(kept: SavedTensors) -> Callable[..., Any]:
    save, offload = (
        (*names, STATISTICS) if "attention" in names else names
        for names in (kept.save, kept.offload)
    )
    if not kept.offload:
        return jax.checkpoint_policies.save_only_these_names(*save)
    return jax.checkpoint_policies.save_and_offload_only_these_names(
        names_which_can_be_saved=save,
        names_which_can_be_offloaded=offload,
        offload_src="device",
        offload_dst=HOST,
    )


def regathered(execution: Execution, multiply: Callable, keep: Sequence[str] = ()) -> Callable:
    """`multiply(x, w)`, which gathers `w` again for the backward pass and keeps what is so named.

    Else every layer's whole weights would stay in memory until then. A layer that is recomputed
    does so anyway, and one gather serves it and its backward pass.
    """
    if execution.remat != "none":
        return multiply
    policy = jax.checkpoint_policies.save_only_these_names(*keep)
    return jax.checkpoint(multiply, policy=policy, prevent_cse=False)
