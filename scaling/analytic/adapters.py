"""Adapters (`scaling.models.lora`) in closed form: their parameters, kernels and gradients.

    t tokens of a device, R rank; I inputs and O outputs of a matrix, those of one tensor device

    forward     t (I + R)    x a         t (R + 2 O)    h b, written, and read by its sum
    backward    t (O + R)    of h        t (2 I + R)    of x, written, and read by its sum
                t (I + R)    of a        t (O + R)      of b

elements read and written: ranks are small, so that products wait for memory. Adapters of one input
read it once forward. All else is frozen: no gradients of matrices, tables or vectors.
"""

from collections.abc import Iterator

from scaling.analytic.step import FLOAT32, StepSizes, Transfer
from scaling.analytic.weights import part_of, shard_axes
from scaling.meshes.rules import REPLICAS
from scaling.models.accounting.matrices import (
    OF_LATENTS,
    SAME_INPUT,
    Stack,
    block_stacks,
    matrix_of_device,
)
from scaling.models.lora import TARGETS
from scaling.program.ir import Kernel, Number, Origin, Phase


def adapted(step: StepSizes, moe: bool) -> list[Stack]:
    """The matrices of one layer that have adapters."""
    lora = step.run.train.lora
    targets = lora.targets if lora else ()
    return [stack for stack in block_stacks(step.config, moe) if TARGETS.get(stack.name) in targets]


def adapter_elements(step: StepSizes) -> Number:
    """Numbers in the adapters of a device. What has d_model is cut as in weights, heads and
    hidden units over tensor."""
    shards = lambda stack: step.shape.size(shard_axes(step, False, stack.name in OF_LATENTS))
    length = lambda stack: stack.rows / shards(stack) + stack.columns * step.share(stack)
    return sum(
        _rank(step) * step.stored(layers) * length(stack)
        for moe, layers in step.layer_kinds
        for stack in adapted(step, moe)
    )


def adapter_kernels(step: StepSizes, moe: bool, phase: Phase) -> Iterator[Kernel]:
    """The products of all adapters of a layer, forward or backward."""
    R, read = _rank(step), set[str]()
    for stack in adapted(step, moe):
        inputs, outputs = matrix_of_device(step.config, stack, step.shape.tensor)
        group = SAME_INPUT.get(stack.name, stack.name)
        if phase == "backward":
            elements, products = 3 * inputs + 2 * outputs + 4 * R, 2
        else:
            elements, products = inputs * (group not in read) + 2 * outputs + 2 * R, 1
        read.add(group)
        yield Kernel(
            f"{phase} adapter of {stack.name}",
            Origin(phase, f"layers/{part_of(stack)}"),
            kind="matmul",
            flops=2 * products * step.tokens * R * (inputs + outputs),
            bytes=step.tokens * elements * step.itemsize,
            dtype=step.run.precision.between,
            dims=(1, step.tokens, outputs, R),
        )


def adapter_transfers(step: StepSizes) -> Iterator[Transfer]:
    """Sums of the adapters' gradients over all devices that share the batch, float32, in one call
    at the end of the step."""
    if step.run.train.lora:
        axes = step.axis_names(*REPLICAS, "fsdp")
        size = FLOAT32 * adapter_elements(step)
        yield Transfer(axes, "all-reduce", size, 1, "adapters", "end")


def _rank(step: StepSizes) -> int:
    return step.run.train.lora.rank if step.run.train.lora else 0
