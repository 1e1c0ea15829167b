"""Matrix products of a layer on one device, forward and backward.

forward            tokens x inputs      times inputs x outputs
inputs' gradient   tokens x outputs     times outputs x inputs
weights' gradient  inputs x tokens      times tokens x outputs
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby

from scaling.analytic.experts import exchanged_rows
from scaling.analytic.step import StepSizes
from scaling.analytic.weights import part_of
from scaling.models.accounting.matrices import (
    BYTES,
    SAME_INPUT,
    Stack,
    block_stacks,
    matrix_of_device,
)
from scaling.program import ops
from scaling.program.ir import Kernel, Number, Origin, Phase


@dataclass(frozen=True)
class Product:
    """One matrix product (or `batch` equal ones) of the forward pass."""

    name: str
    part: str  # of the layer: attention or mlp
    rows: Number  # tokens
    inputs: Number
    outputs: Number
    batch: Number = 1
    grouped: bool = False  # of groups of rows, each with its own matrix
    recomputed: Number = 0  # 1 where remat computes it again
    is_last: bool = False  # writes into the residual stream


def layer_products(step: StepSizes, moe: bool) -> list[Product]:
    """Return the products of a layer's weights, in order."""
    found = [_product(step, stack) for stack in block_stacks(step.config, moe)]
    return list(_merged(found, step.is_own_trainer)) if step.traits.merges else found


def _product(step: StepSizes, stack: Stack) -> Product:
    own = step.shape.tensor if step.sequence_parallel else 1
    rows = step.tokens if stack.over_tensor else step.tokens / own
    product = Product(
        stack.name,
        part_of(stack),
        rows,
        *matrix_of_device(step.config, stack, step.shape.tensor),
        recomputed=step.recomputes(stack.name),
        is_last=stack.is_last,
    )
    if not stack.experts:
        return product
    batch, rows = _expert_rows(step)
    assert step.config.moe is not None
    grouped = step.is_own_trainer and step.config.moe.capacity_factor is None
    return replace(product, batch=batch, rows=rows, grouped=grouped)


def _expert_rows(step: StepSizes) -> tuple[Number, Number]:
    """Experts of a device, and the rows that each multiplies; a capacity fills them up.

    The load is even in the trainer's programs, which do not know it; else it is `moe.skew`.
    """
    moe = step.config.moe
    assert moe is not None
    local = -(-moe.n_experts // step.shape.expert)
    if moe.capacity_factor is None:
        skew = 1.0 if step.is_own_trainer else moe.skew
        return local, step.tokens * moe.experts_per_token * skew / local
    return local, exchanged_rows(step) / local


def _merged(products: list[Product], apart: bool) -> Iterator[Product]:
    """The products with those of one input as one; experts keep theirs `apart`."""
    of_experts = lambda product: apart and product.name.startswith(("expert_", "shared_"))
    group = lambda p: p.name if of_experts(p) else SAME_INPUT.get(p.name, p.name)
    for _, (first, *others) in groupby(products, group):
        name = "+".join((first.name, *(p.name.rpartition("_")[2] for p in others)))
        yield replace(first, name=name, outputs=sum((p.outputs for p in others), first.outputs))


def forward(step: StepSizes, product: Product, phase: Phase, times: Number = 1) -> Kernel:
    """Return the product itself; `times` is 0 where it does not run."""
    return _matmul(step, product.name, phase, product, product.outputs, product.inputs, times)


def of_inputs(step: StepSizes, product: Product) -> Kernel:
    """Return the product that gives the gradient of its input."""
    return _matmul(step, f"d {product.name}", "backward", product, product.inputs, product.outputs)


def of_weights(step: StepSizes, product: Product) -> Kernel:
    """Return the product that gives the gradient of its weights."""
    turned = replace(product, rows=product.inputs)
    name = f"w {product.name}"
    times = step.trains_all
    return _matmul(step, name, "backward", turned, product.outputs, product.rows, times)


def _matmul(
    step: StepSizes,
    name: str,
    phase: Phase,
    product: Product,
    n: Number,
    k: Number,
    times: Number = 1,
) -> Kernel:
    dims = product.batch, product.rows, n, k
    made = matmul(step, f"{phase} {name}", Origin(phase, f"layers/{product.part}"), dims, times)
    if not product.grouped:
        return made
    return replace(made, kind="grouped", dtype=step.run.precision.between)  # never in 8 bits


def matmul(
    step: StepSizes,
    name: str,
    origin: Origin,
    dims: tuple[Number, Number, Number, Number],
    times: Number = 1,
    itemsize_of_result: int | None = None,
    dtype: str = "",
) -> Kernel:
    """A kernel of `dims` (batch, m, n, k): `times` is 0 where it does not run."""
    compute = dtype or step.run.precision.compute
    item = BYTES[compute]
    return ops.matmul(
        name,
        dims,
        compute,
        (item, item, itemsize_of_result or step.itemsize),
        times=times,
        origin=origin,
        issue=step.traits.launch,
        share=step.traits.products,
    )
