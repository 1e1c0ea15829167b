"""Bounds of all settings of a mesh, in microseconds: they cannot need less memory, nor less time.

memory  what is stored between steps, and what the layers keep for their backward pass
time    matrix FLOPs at the best rate that the profile has for any product, what is computed
        again among them, with the bubble around the layers; and the residual stream over
        `tensor` at the full bandwidth of its links, for which our trainer waits
"""

from functools import reduce

import numpy as np

from scaling.analytic import kernels
from scaling.analytic.blocks import READS, WRITES, buffers_of_loop
from scaling.analytic.memory import buffers
from scaling.analytic.step import StepSizes, step_sizes
from scaling.collectives.cost import collective_time
from scaling.meshes.cluster import Cluster
from scaling.models.accounting.flops import ATTENTION, credited_forward
from scaling.planning.space import Choices, ChoicesBatch, described
from scaling.profiles.profile import ANY, Profile
from scaling.program.ir import Number, Phase
from scaling.run import Run
from scaling.simulate.kernels import format_peak, memory_time

ALWAYS = "forward", "backward"  # loops that each program has, in READS and WRITES
STREAMS = 4  # gathers of the residual stream in a layer, forward and backward, and as many sums


def least_memory(run: Run, choices: Choices | ChoicesBatch, share: float = 1.0) -> np.ndarray:
    """Bytes of one device that no setting gets below: [configurations].

    `share` is what the allocator takes over what is not stored from step to step.
    """
    step = step_sizes(described(run, choices), choices.mesh, choices.grid)
    made = buffers(step)  # without a fused attention there are scores, too
    made = {name: b for name, b in made.items() if b.category != "pinned_host"}
    stored = sum((b.bytes for b in made.values() if b.persistent), 0.0)
    names_of = lambda loop: (buffers_of_loop(loop, READS), buffers_of_loop(loop, WRITES))
    used = [made.keys() & {*reads, *writes} for reads, writes in map(names_of, ALWAYS)]
    loops = [sum(made[n].bytes for n in names if not made[n].persistent) for names in used]
    return np.broadcast_to(stored + share * reduce(np.maximum, loops), (choices.count,))


def least_time(run: Run, cluster: Cluster, profile: Profile, choices: ChoicesBatch) -> np.ndarray:
    """Seconds of a step that no setting gets below: [configurations]."""
    step = step_sizes(described(run, choices), choices.mesh, choices.grid)
    products = credited_forward(run.model, 1, run.batch.seq_len, causal=True).components
    flops = {name: float(n) * step.grid.global_batch for name, n in products.items()}
    attention, head = sum(flops.pop(name) for name in ATTENTION), flops.pop("head")
    forward, backward = attention_rates(run, cluster, profile)
    rate = matmul_rate(run, cluster, profile)
    # Of layers of several kinds nobody knows which are computed again.
    one_kind = len(step.layer_kinds) == 1
    of_all = step.stages.all_again / run.model.n_layers * one_kind
    share = np.where(np.isfinite(step.grid.again), of_all, 1.0)[()]
    again = lambda name: step.recomputes(name) * share
    gradients = 1 + step.trains_all  # of inputs, and of matrices unless frozen
    layers = sum(n * (1 + again(name) + gradients) for name, n in flops.items()) / rate
    core = step.remat_is("full") * share  # computed again
    layers = layers + attention * ((1 + core) / forward + 2 / backward)
    head = head * (1 + gradients)  # in no bubble
    passes = np.asarray(step.microbatches * step.virtual_stages, float)  # of a stage; the rest
    fills = run.pipeline.schedule in ("zero_bubble", "dualpipe")  # the bubble, with other work
    busy_share = passes / (passes + (step.shape.stage - 1) * (not fills))  # are bubble
    work = (layers / busy_share + head / rate) / choices.mesh.devices
    stream = _stream(step, choices, cluster, profile)
    seconds = work + _fusions(step, cluster, profile) + stream
    return np.broadcast_to(seconds, (choices.count,))


def matmul_rate(run: Run, cluster: Cluster, profile: Profile) -> float:
    """FLOP/s that no product of weights exceeds."""
    fits = [fit for fit in profile.matmul if fit.dtype in (run.precision.compute, ANY)]
    peak = format_peak(cluster.accelerator, run.precision.compute, profile)
    return max((fit.peak or peak) * min(fit.efficiency, fit.sustained, fit.best) for fit in fits)


def attention_rates(run: Run, cluster: Cluster, profile: Profile) -> tuple[float, float]:
    """FLOP/s of the attention forward and backward, masked scores not counted, at most."""
    peak = format_peak(cluster.accelerator, run.precision.between, profile)
    rates = {
        fit.direction: (fit.peak or peak) * min(fit.efficiency, fit.best)
        for fit in profile.attention
    }
    product = max(matmul_rate(run, cluster, profile), peak)
    return rates.get("forward", product), rates.get("backward", product)


def _fusions(step: StepSizes, cluster: Cluster, profile: Profile) -> Number:
    """Seconds of the norms and activations of all layers, by their bytes."""
    bytes_: Number = 0.0
    phases: tuple[Phase, ...] = ("forward", "backward")
    for moe, layers in step.layer_kinds:
        for phase in phases:
            norms = [kernels.norm(step, phase, part).bytes for part in ("attention", "mlp")]
            each = sum(norms) + kernels.activation(step, moe, phase).bytes
            bytes_ = bytes_ + step.passes(layers) * each
    return memory_time(bytes_, cluster.accelerator, profile.memory)


def _stream(step: StepSizes, choices: ChoicesBatch, cluster: Cluster, profile: Profile) -> Number:
    """Seconds of the residual stream over tensor, of layers without experts."""
    if not step.is_own_trainer or not step.sequence_parallel or cluster.torus is not None:
        return 0.0  # of a torus the other axes decide which links a group has
    size = step.tokens * step.config.d_model * step.itemsize
    inside = lambda order: order[order.index("tensor") + 1 :]
    meshes = [each.mesh for each in choices.every]
    apart = [mesh.size(inside(mesh.device_order)) for mesh in meshes]  # neighbours of a group
    pairs = np.array([[mesh.tensor for mesh in meshes], apart]).repeat(choices.counts, axis=1)
    distinct, number = np.unique(pairs, axis=1, return_inverse=True)
    groups = [np.arange(parts)[None] * stride for parts, stride in distinct.T]
    least = lambda group: collective_time("all-gather", 1.0, group, cluster, profile).lower_bound
    each = np.array([least(group) for group in groups])[number]
    layers = sum(step.passes(n) for moe, n in step.layer_kinds if not moe)
    return 2 * STREAMS * layers * size * each
