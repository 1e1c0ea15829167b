"""Communication of layers with experts, beyond `analytic.communication.table`.

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

from scaling.analytic.communication.transfers import FLOAT32, INT32, StepSizes, Transfer
from scaling.analytic.communication.weights import gathers_once, gradient_shards, zero_1_transfers
from scaling.meshes.rules import REPLICAS
from scaling.meshes.shape import MeshShape
from scaling.models.accounting import forward_flops, train_flops
from scaling.models.accounting.expert_buffers import exchange_rows
from scaling.models.accounting.matrices import (
    attention_matrices,
    compressing_matrices,
    expert_width,
    mlp_matrices,
    n_moe_layers,
)
from scaling.models.config import ModelConfig
from scaling.parallelism.pipeline import computes_again, pipeline_schedule
from scaling.run import Run

OF_EXPERTS = tuple(axis for axis in REPLICAS if axis != "expert")  # replicas of a routed expert
BUFFERS = "empty rows of the experts' buffers are multiplied too"
EVERY_EXPERT = "XLA multiplies each row of the experts' buffers by every expert of its device"


def expert_transfers(step: StepSizes) -> Iterator[Transfer]:
    """Lines of the layers with experts; none for a dense model."""
    if n_moe_layers(step.config):
        yield from _weights(step)
        yield from _exchange(step)
        yield from _choices(step)


def buffer_flops(run: Run, shape: MeshShape) -> dict[str, float]:
    """FLOPs on one device beyond those asked for, by reason: of the experts' fixed buffers.

    Batched products take empty rows along. Where the backend has no ragged product, XLA also takes
    each row to all experts of its device (seen with jax 0.10.2 for H100).
    """
    moe = run.model.moe
    if moe is None:
        return {}
    batch, again = run.batch, computes_again(run, shape)
    train = train_flops(run.model, batch.global_batch, batch.seq_len, run.remat).components
    forward = forward_flops(run.model, batch.global_batch, batch.seq_len).components
    of_experts = (name for name in train if name.startswith("expert_"))
    experts = sum(train[name] + again * forward[name] for name in of_experts)
    experts *= pipeline_schedule(run, shape).overhead / shape.devices
    tokens = batch.tokens // batch.microbatches // shape.batch_shards // shape.context
    filled = tokens * moe.experts_per_token
    padding = exchange_rows(moe, tokens, shape.expert) / filled
    if moe.capacity_factor is not None:
        return {BUFFERS: experts * (padding - 1)}
    local = moe.n_experts // shape.expert
    return {BUFFERS: experts * (padding - 1), EVERY_EXPERT: experts * (padding * local - 1)}


def _weights(step: StepSizes) -> Iterator[Transfer]:
    """Matrices: gathered twice, their gradients scattered and summed."""
    config, layers = step.config, n_moe_layers(step.config)
    dense, latent, experts, router = _elements(config)
    passes, stored = step.passes(layers), layers / step.shape.stage
    tensor, fsdp, expert = step.shape.tensor, step.shape.fsdp, step.shape.expert
    for what, elements, itemsize, replicas, is_whole in (
        ("attention and shared experts of a layer", dense / tensor, step.itemsize, REPLICAS, False),
        ("matrices of a layer that make latents", latent, step.itemsize, REPLICAS, True),
        ("routed experts of a layer", experts / tensor / expert, step.itemsize, OF_EXPERTS, False),
        ("router of a layer", router, FLOAT32, REPLICAS, True),
    ):
        size, shard = elements * itemsize, (elements / fsdp, stored, replicas)
        over_tensor = is_whole and step.sequence_parallel
        if gathers_once(step):
            yield from zero_1_transfers(step, what, elements, stored, passes, over_tensor, itemsize)
            yield from gradient_shards(step, what, *shard, 0, itemsize)
            continue
        yield Transfer(step.over("fsdp"), "all-gather", size, (2 + step.recompute) * passes, what)
        yield Transfer(step.over("fsdp"), "reduce-scatter", size, passes, what)
        yield from gradient_shards(step, what, *shard, over_tensor * passes, itemsize)


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


def _elements(config: ModelConfig) -> tuple[int, int, int, int]:
    """Elements of one layer, unsharded: attention and shared experts; matrices that make latents;
    routed experts; router."""
    moe = config.moe
    assert moe is not None
    count = lambda matrices: sum(inputs * outputs for inputs, outputs in matrices.values())
    one = count(mlp_matrices(config, expert_width(config)))
    latent = count(compressing_matrices(config))
    dense = count(attention_matrices(config)) - latent + moe.n_shared_experts * one
    return dense, latent, moe.n_experts * one, config.d_model * moe.n_experts
