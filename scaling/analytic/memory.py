"""Memory of a device: what is stored between steps, and what a step keeps and needs meanwhile.

    parameters       in their stored format; sharded over fsdp from ZeRO stage 3 on
    optimizer state  moments, and a float32 copy of 16-bit parameters; sharded from stage 1 on
    gradients        sums of microbatches; sharded from stage 2 on
    activations      what remat keeps of each layer, of each microbatch in flight
    communication    weights gathered for products
    temporary        logits and their gradient; what one layer's backward pass needs

The trainer stores parameters and optimiser state sharded in every stage but 0, and its gradients
are float32 shards where a layer's are scattered (stage 3).
"""

import numpy as np

from scaling.analytic.step import FLOAT32, StepSizes
from scaling.analytic.weights import ATTENTION, MLP, weights_of
from scaling.models.accounting.activations import activation_tensors
from scaling.models.accounting.matrices import BYTES, expert_width
from scaling.program.ir import Buffer, Number

# Numbers that an optimiser keeps of each parameter (`scaling.optimizers`).
STATES = {"adamw": 2, "lion": 1, "adafactor": 0, "muon": 1}
STREAM = ("block_input", "residual")  # tensors of a block as long as the stream
NORMED = ("norm1_output", "norm2_output", "expert_input")  # inputs of products
PREFETCHED = 2  # layers whose weights are gathered at a time: one in use, one ahead
WORKING = 4  # hidden activations of one layer that its backward pass has at a time


def elements(step: StepSizes) -> float:
    """Parameters of a device, whole over fsdp."""
    return float(sum(w.elements * w.stored for w in weights_of(step)))


def shards(step: StepSizes, first: int) -> Number:
    """Parts over fsdp of what is sharded from that ZeRO stage on."""
    stages = range(first, 4)
    return np.where(step.zero(*stages), step.shape.fsdp, 1)[()]


def saved_bytes(step: StepSizes, moe: bool) -> Number:
    """Bytes that a layer keeps of one microbatch from its forward to its backward pass."""
    run, shape = step.run, step.shape
    tensors = activation_tensors(step.config, run.batch.seq_len, run.attention, moe)
    none = 1 - step.selective - step.full
    total: Number = 0.0
    for tensor in tensors:
        item = FLOAT32 if tensor.always_fp32 else step.itemsize
        policies = {"none": none, "selective": step.selective, "full": step.full}
        if step.habits.is_ours:
            kept = sum(policies[name] for name in tensor.policies)
        else:  # only the core's are computed again
            kept = none + step.selective * (tensor.name != "probabilities")
            kept = kept + step.full * ("full" in tensor.policies)
        whole = tensor.name in NORMED and step.habits.is_ours
        cut = step.sequence_parallel and not whole if tensor.name in (*STREAM, *NORMED) else True
        total = total + kept * tensor.elements * item / (shape.tensor if cut else 1)
    return total * step.tokens


def in_flight(step: StepSizes) -> Number:
    """Microbatches whose activations the first stage keeps at a time.

    1F1B: as many as there are stages; several virtual stages: (S - 1) / (S V) more (arXiv
    2205.05198, section 4.2.3).
    """
    stages, virtual = step.shape.stage, step.virtual_stages
    if stages == 1:
        return 1
    if step.run.pipeline.schedule == "gpipe":
        return step.microbatches
    most = stages + (stages - 1) / virtual if virtual > 1 else stages
    return np.minimum(most, step.microbatches)[()]


def activations(step: StepSizes) -> Number:
    """Bytes that all layers of a device keep."""
    of_layers = sum(step.stored(n) * saved_bytes(step, moe) for moe, n in step.layer_kinds)
    if not step.ticks:
        return of_layers * in_flight(step)
    stream = step.tokens * step.config.d_model * step.itemsize
    stream = stream / (step.shape.tensor if step.sequence_parallel else 1)
    part = of_layers / step.virtual_stages
    if step.run.pipeline.schedule == "gpipe":
        return part * step.iterations + stream * step.iterations
    return part + 2 * stream * step.iterations


def buffers(step: StepSizes) -> dict[str, Buffer]:
    """The buffers of a step by name, at the stage that has most."""
    precision, ours, count = step.run.precision, step.habits.is_ours, elements(step)
    own = lambda first: count / shards(step, 1 if ours else first)
    master = 0 if precision.parameters == "fp32" else FLOAT32
    states = STATES.get(step.run.optimizer, 2) * BYTES[precision.optimizer_state] + master
    summed = FLOAT32 if ours else BYTES[precision.gradients]
    gathered_layer = max(
        sum(
            w.elements * w.itemsize
            for w in weights_of(step)
            if w.part in (ATTENTION, MLP) and w.moe == moe
        )
        for moe, _ in step.layer_kinds
    )
    held = gathered_layer * PREFETCHED * step.zero(3) * (step.shape.fsdp > 1)
    if ours:
        held = held + count * step.itemsize * step.zero(1, 2)
    width = step.config.d_ff
    if step.config.moe:
        width = max(width, step.config.moe.experts_per_token * expert_width(step.config))
    hidden = step.tokens * width * step.itemsize / step.shape.tensor
    vocab = step.config.vocab_size / (step.shape.tensor if step.vocab_is_sharded else 1)
    tokens = step.tokens / (step.shape.stage if step.ticks else 1)
    logits = tokens * vocab * (FLOAT32 + step.itemsize)
    made = (
        Buffer(
            "parameters",
            count / shards(step, 1 if ours else 3) * BYTES[precision.parameters],
            "parameters",
            True,
        ),
        Buffer("optimizer state", own(1) * states, "optimizer_state", True),
        Buffer("gradients", count / shards(step, 2) * summed, "gradients", not ours),
        Buffer("activations", activations(step), "activations"),
        Buffer("gathered weights", held, "communication"),
        Buffer("logits", logits, "temporary"),
        Buffer("backward of a layer", WORKING * hidden, "temporary"),
    )
    return {buffer.name: buffer for buffer in made}
