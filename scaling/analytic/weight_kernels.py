"""Fusions over the weights of one layer and their gradients, beside the products.

cast          stored weights into compute format, before they are gathered
quantized     operands of 8-bit products: read in 16 bits, written in 8
widened       gradients into float32, before they are scattered (`precision.reduce`)
gradients     into the sums of all layers
"""

from collections.abc import Sequence

import numpy as np

from scaling.analytic.kernels import fusion
from scaling.analytic.products import Product
from scaling.analytic.step import FLOAT32, StepSizes
from scaling.analytic.weights import weights_of
from scaling.models.accounting.matrices import BYTES
from scaling.program.ir import Kernel, Number, Origin, Phase


def layer_elements(step: StepSizes, moe: bool, part: str = "") -> Number:
    """Elements of a layer's matrices on a device, whole over fsdp: of attention, MLP, or both."""
    own = (w for w in weights_of(step) if w.in_layer and w.moe == moe and part in ("", w.part))
    return sum(w.elements for w in own)


def casts(step: StepSizes, moe: bool, part: str, phase: Phase) -> list[Kernel]:
    """Stored weights of a part in compute format; none where they are stored so."""
    precision = step.run.precision
    stored = precision.parameters if step.trains_all else precision.frozen
    if BYTES[stored] == step.itemsize:  # fp16 is written as bf16
        return []
    size = layer_elements(step, moe, part) * (FLOAT32 + step.itemsize)
    shards = step.is_zero_stage(3) / step.shape.fsdp + (1 - step.is_zero_stage(3))
    return [fusion(step, f"{phase} {part} cast", Origin(phase, f"layers/{part}"), size * shards)]


def quantized(step: StepSizes, products: Sequence[Product], phase: Phase) -> list[Kernel]:
    """Operands of 8-bit products; grouped ones are never in 8 bits."""
    if step.run.precision.compute != "fp8":
        return []
    every = [p for p in products if not p.grouped]
    operands = sum(p.batch * p.inputs * (p.rows + p.outputs) for p in every)
    results = sum(p.batch * p.rows * p.outputs for p in every)
    moved = (operands + results * (phase == "backward")) * (step.itemsize + BYTES["fp8"])
    return [fusion(step, f"{phase} quantized", Origin(phase, "layers/mlp"), moved)]


def widened(step: StepSizes, moe: bool) -> list[Kernel]:
    """Gradients of weights in the format in which they are scattered."""
    if step.arising_itemsize == step.itemsize:
        return []
    scattered = step.is_zero_stage(3) * np.greater(step.shape.fsdp, 1)
    moved = layer_elements(step, moe) * scattered
    moved = moved * (step.itemsize + step.arising_itemsize) * step.trains_all
    return [fusion(step, "backward widened", Origin("backward", "layers"), moved)]


def gradient_sums(step: StepSizes, moe: bool) -> Kernel:
    """Gradients of weights, into the arrays of all layers; other software reads the sums, too."""
    shards = step.is_zero_stage(2, 3) / step.shape.fsdp + step.is_zero_stage(0, 1)
    passes = 1 if step.is_own_trainer else 2
    item = step.arising_itemsize + passes * step.summed_itemsize
    moved = layer_elements(step, moe) * shards * item * step.trains_all
    return fusion(step, "backward gradients", Origin("backward", "layers"), moved)
