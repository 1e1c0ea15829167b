"""Communication of layers with experts, beyond `analytic.table`.

Beyond its letters: A matrices of the attention and of shared experts of one layer over tensor,
G those of the routed experts of one device (n / expert of them, over tensor), n experts, k of them
per token, T tokens of one microbatch on one device, R rows of the buffers (models/accounting/
exchange.py), L now the layers with experts.

    over          kind            elements               why
    fsdp          all-gather      M L 2 (A + G)          as any matrix; the router, D n, in float32
    fsdp          reduce-scatter  M L (A + G)            likewise
    replicas      all-reduce      L A / fsdp             data, expert and context together: A and
                                                         the router are replicated over all three
    data+context  all-reduce      L G / fsdp             experts have seen the tokens of all devices
                                                         along expert already
    expert        all-to-all      M L 4 R D              tokens out, results back, and the gradients
                                                         of both
    expert        all-to-all      M L 2 R                float32: weights of rows, and gradients
    tensor        all-gather      M L 2 T k              weights and numbers of the chosen experts
    tensor        reduce-scatter  M L T k                float32: gradients of the weights
    tokens        all-reduce      M L (2 n + 3)          float32: load and balancing losses

A layer that is recomputed sends its tokens out once more (results are only added up, so they are
not needed), with their weights, and gathers the choices again. The router meets the tokens of a
sequence-parallel stream, so its gradient is summed over tensor too (and so are those of matrices
that make latents: not in A). Without sequence parallelism choices are not gathered, and the
gradients of weights are summed over tensor instead.

Other software sends the rows that there are, `moe.skew` times the mean to the busiest device, in
one call each way, and no choices: a device knows those of its own tokens.
"""

from collections.abc import Iterator

import numpy as np

from scaling.analytic.step import FLOAT32, INT32, StepSizes, Transfer
from scaling.meshes.rules import REPLICAS
from scaling.models.accounting.expert_buffers import exchange_rows
from scaling.models.accounting.matrices import n_moe_layers
from scaling.program.ir import CollectiveKind, Number


def expert_transfers(step: StepSizes) -> Iterator[Transfer]:
    """Lines of the layers with experts but those of weights; none for a dense model."""
    if n_moe_layers(step.config):
        yield from _exchange(step)
        if step.habits.is_ours:
            yield from _choices(step)


def exchanged_rows(step: StepSizes) -> Number:
    """Rows of d_model elements that a device sends to experts, and receives, in one layer."""
    return step.once(_exchanged_rows)


def _exchanged_rows(step: StepSizes) -> Number:
    moe = step.config.moe
    assert moe is not None
    if moe.capacity_factor is None and not step.habits.is_ours:
        parts = step.shape.tensor if step.sequence_parallel else 1
        return step.tokens * moe.experts_per_token * moe.skew / parts
    pairs = np.stack(np.broadcast_arrays(np.atleast_1d(step.tokens).astype(int), step.shape.expert))
    distinct, number = np.unique(pairs, axis=1, return_inverse=True)
    rows = np.array([float(exchange_rows(moe, *map(int, pair))) for pair in distinct.T])[number]
    return rows if np.ndim(step.tokens) or np.ndim(step.shape.expert) else float(rows[0])


def _exchange(step: StepSizes) -> Iterator[Transfer]:
    """Tokens to their experts and back."""
    moe, over, ours = step.config.moe, step.over("expert"), step.habits.is_ours
    assert moe is not None
    rows = exchanged_rows(step)
    passes = step.passes(n_moe_layers(step.config))
    tick, again = step.recompute, step.again if ours else step.full
    out, back = "experts out", "experts back"
    # Results are only added up: remat does not need them, a tick of a pipeline does.
    stream = (
        *((f"forward {out}", 1), (f"forward {back}", 1), (f"again {out}", tick)),
        *((f"again {back}", tick), (f"remat {out}", again), (f"remat {back}", again * (not ours))),
        *((f"backward {back}", 1), (f"backward {out}", 1)),
    )
    size, what = rows * step.config.d_model * step.itemsize, "tokens of experts"
    for place, share in stream:
        yield Transfer(over, "all-to-all", size, passes * share, what, place, moe=True)
    if not ours:
        return
    weights = (f"forward {out}", 1), (f"again {out}", tick), (f"remat {out}", again)
    for place, share in (*weights, (f"backward {out}", 1)):
        size, what = rows * FLOAT32, "weights of rows"
        yield Transfer(over, "all-to-all", size, passes * share, what, place, moe=True)
    for place, share in weights if moe.capacity_factor is None else ():
        size, what = moe.n_experts * INT32, "rows of experts"
        yield Transfer(over, "all-to-all", size, passes * share, what, place, moe=True)


def _choices(step: StepSizes) -> Iterator[Transfer]:
    """Choices and weights of the router, and its statistics."""
    moe, over = step.config.moe, step.over("tensor")
    assert moe is not None
    passes = step.passes(n_moe_layers(step.config))
    choices = step.tokens * moe.experts_per_token
    axes = step.over(*REPLICAS, "fsdp", *(("tensor",) if step.sequence_parallel else ()))
    sums = (2 * moe.n_experts + 3) * FLOAT32
    for place, share in (("forward", 1), ("again", step.recompute), ("remat", step.again)):
        calls, where = passes * share, f"{place} router"
        for what in ("weights of tokens", "experts of tokens") if step.sequence_parallel else ():
            yield Transfer(over, "all-gather", choices * FLOAT32, calls, what, where, moe=True)
        what = "load and balancing losses"
        yield Transfer(axes, "all-reduce", sums, calls, what, where, moe=True)
    kind: CollectiveKind = "reduce-scatter" if step.sequence_parallel else "all-reduce"
    what, where = "weights of tokens", "backward router"
    yield Transfer(over, kind, choices * FLOAT32, passes, what, where, moe=True)
