"""Communication of layers with experts, beyond `analytic.table`.

Beyond its letters: A matrices of the attention and of shared experts of one layer over tensor,
G those of the routed experts of one device (n / expert of them, over tensor), n experts, k of them
per token, T tokens of one microbatch on one device, P devices along expert, L now the layers with
experts.

    over          kind            elements               why
    shards        all-gather      M L 2 A                as any matrix, over fsdp, expert and
    shards        reduce-scatter  M L A                  context; the router, D n, in float32
    fsdp+context  all-gather      M L 2 G                experts are dealt out over expert, and have
    fsdp+context  reduce-scatter  M L G                  seen the tokens of all devices along it
    data          all-reduce      L (A + G) / shards     the shards of each
    expert        all-gather      M L 2 P T D            tokens out, and gradients of results
    expert        reduce-scatter  M L 2 P T D            results back, and gradients of tokens
    expert        all-gather      M L 2 P T k            weights and numbers of the chosen experts
    expert        reduce-scatter  M L P T k              float32: gradients of the weights
    tensor        all-gather      M L 2 T k              weights and numbers of the chosen experts
    tensor        reduce-scatter  M L T k                float32: gradients of the weights
    tokens        all-reduce      M L (2 n + 3)          float32: load and balancing losses

A layer that is recomputed sends its tokens out once more (results are only added up, so they are
not needed), with their weights, and gathers the choices again. The router meets the tokens of a
sequence-parallel stream, so its gradient is summed over tensor too (and so are those of matrices
that make latents: not in A). Without sequence parallelism choices are not gathered, and the
gradients of weights are summed over tensor instead.

With a capacity factor R rows (`models.accounting.expert_buffers`) go to their experts and back, in
all-to-alls of R D elements where tokens are gathered or results scattered, and of R float32
weights.

Other software sends the rows that there are, `moe.skew` times the mean to the busiest device, in
one all-to-all each way, and no choices: a device knows those of its own tokens.

Dispatcher deepep (deepseek-ai/DeepEP) sends a token once to each node that has an expert of it, and
over NVLink from there on, which is taken to keep up. If a token chooses k of E experts, of which e
are on each of c nodes, it is sent to c (1 - C(E - e, k) / C(E, k)) nodes in the mean. Where it
chooses some groups first, e and E are of the chosen ones, j of them on a node as often as that is
drawn.
"""

from collections.abc import Iterator
from functools import lru_cache, partial
from math import comb, prod

import numpy as np

from scaling.analytic.step import FLOAT32, StepSizes, Transfer
from scaling.meshes.rules import REPLICAS
from scaling.models.accounting.expert_buffers import KEPT, buffer_rows, kernels_divide
from scaling.models.accounting.matrices import BYTES, n_moe_layers
from scaling.models.config import Moe
from scaling.program.ir import CollectiveKind, Number

SCALED = 128  # elements of one float32 scale of a token in fp8 (arXiv 2412.19437, section 3.3.2)


def expert_transfers(step: StepSizes) -> Iterator[Transfer]:
    """The transfers of layers with experts, but those of weights."""
    if n_moe_layers(step.config):
        yield from _exchange(step)
        if step.is_own_trainer:
            yield from _choices(step)


@lru_cache(maxsize=8)
def exchanged_rows(step: StepSizes) -> Number:
    """The rows of d_model elements that the experts of a device take in one layer."""
    moe = step.experts
    if moe.capacity_factor is None and not step.is_own_trainer:
        return step.tokens * moe.experts_per_token * moe.skew / step.stream_parts
    pairs = np.stack(
        np.broadcast_arrays(np.atleast_1d(step.tokens).astype(np.int64), step.shape.expert)
    )
    distinct, number = np.unique(pairs, axis=1, return_inverse=True)
    rows = np.array([float(buffer_rows(moe, *map(int, pair))) for pair in distinct.T])[number]
    return rows if np.ndim(step.tokens) or np.ndim(step.shape.expert) else float(rows[0])


@lru_cache(maxsize=8)
def has_kernels(step: StepSizes) -> bool:
    """True if the trainer's own kernels multiply the rows (`scaling.models.moe.grouped_mlps`): on
    NVIDIA's GPUs from Ampere on, on all meshes of the step or on none (`step.structure`)."""
    tensor = int(np.min(step.shape.tensor))
    return step.is_own_trainer and step.grouped and kernels_divide(step.config, tensor)


def expert_load(step: StepSizes) -> Number:
    """The rows that the busiest device multiplies in one layer, without empty ones; of the
    trainer's buffers no more than they have room for."""
    moe = step.experts
    rows = step.tokens * moe.experts_per_token * moe.skew
    return np.minimum(rows, exchanged_rows(step)) if has_kernels(step) else rows


def saved_expert_rows(step: StepSizes, tensor: str) -> Number:
    """The rows of a tensor of the trainer's experts that remat keeps of one layer."""
    if not has_kernels(step):
        return exchanged_rows(step)
    if tensor == "expert_input":
        return step.tokens * step.shape.expert  # the tokens themselves
    kept = KEPT * step.tokens * step.experts.experts_per_token
    return np.minimum(exchanged_rows(step), kept) * (tensor != "expert_hidden")


def _exchange(step: StepSizes) -> Iterator[Transfer]:
    """Tokens to their experts and back; the trainer's with their weights and numbers of experts."""
    moe, over, own_trainer = step.experts, step.axis_names("expert"), step.is_own_trainer
    passes, again = step.passes(n_moe_layers(step.config)), step.repeats_layer
    gathers = own_trainer and moe.capacity_factor is None
    rows = step.tokens * step.shape.expert if gathers else exchanged_rows(step)
    sent = rows if gathers else rows * copies_of_token(step) / moe.experts_per_token
    size = sent * step.config.d_model * step.itemsize
    weights = rows * FLOAT32  # numbers of experts, int32, are as long
    kinds: tuple[CollectiveKind, ...] = "all-to-all", "all-to-all"
    if gathers:  # of what comes back, of what goes out
        kinds, weights = ("reduce-scatter", "all-gather"), rows * moe.experts_per_token * FLOAT32
    # Results are only added up: remat does not need them.
    shares: dict[str, tuple[Number, Number]] = {  # of the passes: out and back
        "forward": (1, 1),
        "remat": (rows_again(step), again * (not own_trainer)),
        "backward": (1, 1),
    }

    def line(kind: CollectiveKind, size: Number, share: Number, what: str, where: str) -> Transfer:
        return Transfer(over, kind, size, passes * share, what, where, moe=True)

    for place, (out, back) in shares.items():
        ahead, where = place != "backward", f"{place} experts out"
        # Dispatched are tokens ahead, and gradients of their results backward.
        for own, share, at in ((ahead, out, where), (not ahead, back, f"{place} experts back")):
            yield line(kinds[own], size * _dispatched(step, own), share, "tokens of experts", at)
        if own_trainer:  # also where rows are kept
            share = again if place == "remat" else out
            yield line(kinds[ahead], weights, share, "weights of rows", where)
            if gathers and ahead:
                yield line("all-gather", weights, share, "experts of tokens", where)


def _dispatched(step: StepSizes, is_dispatch: bool) -> float:
    """Bytes of what is dispatched, or combined, over those of the compute format."""
    in_fp8 = is_dispatch and step.run.precision.dispatch == "fp8"
    return (BYTES["fp8"] + FLOAT32 / SCALED) / step.itemsize if in_fp8 else 1.0


def copies_of_token(step: StepSizes) -> Number:
    """Copies of a token that are sent: of dispatcher deepep one to each node with an expert of it,
    where experts are on several nodes; else one to each expert."""
    moe, shape, order = step.experts, step.shape, step.shape.device_order
    if step.run.dispatcher != "deepep":
        return moe.experts_per_token
    inner = shape.size(order[order.index("expert") + 1 :])
    nodes = -(-shape.expert // np.maximum(step.node // inner, 1))
    return np.vectorize(partial(_nodes_of_token, moe), otypes=[float])(nodes)[()]


def _nodes_of_token(moe: Moe, nodes: int) -> float:
    """Nodes that a token is sent to in the mean; on one node each of its experts gets it."""
    k, groups, chosen = moe.experts_per_token, moe.n_groups, moe.groups_per_token
    if nodes == 1:
        return k
    of_node = max(groups // nodes, 1)
    every, own = chosen * moe.n_experts / groups, moe.n_experts / nodes / of_node
    missed = sum(
        comb(of_node, j)
        * comb(groups - of_node, chosen - j)
        / comb(groups, chosen)
        * prod(max(every - j * own - i, 0) / max(every - i, 1) for i in range(k))
        for j in range(min(of_node, chosen) + 1)
    )
    return nodes * (1 - missed)


def rows_again(step: StepSizes) -> Number:
    """1 where remat sends tokens to their experts again, else 0."""
    return (
        step.recomputes_some * (1 - step.keeps("expert_input"))
        if step.is_own_trainer
        else step.remat_is("full")
    )


def _choices(step: StepSizes) -> Iterator[Transfer]:
    """Choices and weights of the router, and its statistics."""
    moe, over = step.experts, step.axis_names("tensor")
    passes = step.passes(n_moe_layers(step.config))
    choices = step.tokens * moe.experts_per_token
    axes = step.axis_names(*REPLICAS, "fsdp", *(("tensor",) if step.sequence_parallel else ()))
    sums = (2 * moe.n_experts + 3) * FLOAT32
    for place, share in (("forward", 1), ("remat", step.recomputes_some)):
        calls, where = passes * share, f"{place} router"
        for what in ("weights of tokens", "experts of tokens") if step.sequence_parallel else ():
            yield Transfer(over, "all-gather", choices * FLOAT32, calls, what, where, moe=True)
        what = "load and balancing losses"
        yield Transfer(axes, "all-reduce", sums, calls, what, where, moe=True)
    kind: CollectiveKind = "reduce-scatter" if step.sequence_parallel else "all-reduce"
    what, where = "weights of tokens", "backward router"
    yield Transfer(over, kind, choices * FLOAT32, passes, what, where, moe=True)
