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
"""

from collections.abc import Iterator

from scaling.analytic.step import FLOAT32, INT32, StepSizes, Transfer
from scaling.meshes.rules import REPLICAS
from scaling.models.accounting.expert_buffers import exchange_rows
from scaling.models.accounting.matrices import n_moe_layers


def expert_transfers(step: StepSizes) -> Iterator[Transfer]:
    """Lines of the layers with experts but those of weights; none for a dense model."""
    if n_moe_layers(step.config):
        yield from _exchange(step)
        yield from _choices(step)


def _exchange(step: StepSizes) -> Iterator[Transfer]:
    """Tokens to their experts and back."""
    moe, D = step.config.moe, step.config.d_model
    assert moe is not None
    rows = exchange_rows(moe, int(step.tokens), step.shape.expert)
    calls, again = step.passes(n_moe_layers(step.config)), step.recompute + _remat_passes(step)
    over = step.over("expert")
    sent = 4 + _remat_passes(step) + 2 * step.recompute  # out and back again, in a tick
    yield Transfer(over, "all-to-all", rows * D * step.itemsize, calls * sent, "tokens of experts")
    yield Transfer(over, "all-to-all", rows * FLOAT32, calls * (2 + again), "weights of rows")
    if moe.capacity_factor is None:
        size = moe.n_experts * INT32
        yield Transfer(over, "all-to-all", size, calls * (1 + again), "rows of experts")


def _choices(step: StepSizes) -> Iterator[Transfer]:
    """Choices and weights of the router, and its statistics."""
    moe = step.config.moe
    assert moe is not None
    calls = step.passes(n_moe_layers(step.config))
    gathers = calls * (1 + step.recompute + _remat_passes(step))
    over, choices = step.over("tensor"), step.tokens * moe.experts_per_token
    if step.sequence_parallel:
        yield Transfer(over, "all-gather", choices * FLOAT32, gathers, "weights of tokens")
        yield Transfer(over, "all-gather", choices * INT32, gathers, "experts of tokens")
        yield Transfer(over, "reduce-scatter", choices * FLOAT32, calls, "weights of tokens")
    else:
        yield Transfer(over, "all-reduce", choices * FLOAT32, calls, "weights of tokens")
    axes = step.over(*REPLICAS, "fsdp", *(("tensor",) if step.sequence_parallel else ()))
    sums = (2 * moe.n_experts + 3) * FLOAT32
    yield Transfer(axes, "all-reduce", sums, gathers, "load and balancing losses")


def _remat_passes(step: StepSizes) -> int:
    """Number of times that remat computes a layer's exchange again: 0 or 1."""
    return int(step.run.remat != "none")
