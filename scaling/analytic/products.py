"""Matrix products of a layer on one device, in training and in serving.

forward            rows x inputs        times inputs x outputs
inputs' gradient   rows x outputs       times outputs x inputs
weights' gradient  inputs x rows        times rows x outputs
"""

from dataclasses import dataclass, replace
from functools import lru_cache

from scaling.analytic.experts import exchanged_rows, expert_load, has_kernels
from scaling.analytic.step import StepSizes
from scaling.analytic.weights import part_of
from scaling.models.accounting.matrices import (
    BYTES,
    SAME_INPUT,
    Stack,
    block_stacks,
    matrix_of_device,
)
from scaling.models.config import ModelConfig
from scaling.program import ops
from scaling.program.ir import Kernel, Number, Origin, Phase

Dims = tuple[Number, Number, Number, Number]  # batch, m, n, k


@dataclass(frozen=True)
class LayerProduct:
    """One matrix product (or `batch` equal ones) of matrices that stand side by side."""

    name: str  # "q+k+v"
    stack: Stack  # the first of the matrices
    inputs: Number  # of a device
    outputs: Number
    rows: Number = 1  # tokens
    batch: Number = 1
    grouped: bool = False  # of groups of rows, each with its own matrix

    @property
    def part(self) -> str:
        """The part of the layer that it belongs to."""
        return part_of(self.stack)

    @property
    def forward(self) -> Dims:
        """Sizes of the product itself."""
        return self.batch, self.rows, self.outputs, self.inputs

    @property
    def of_inputs(self) -> Dims:
        """Sizes of the product that gives the gradient of its input."""
        return self.batch, self.rows, self.inputs, self.outputs

    @property
    def of_weights(self) -> Dims:
        """Sizes of the product that gives the gradient of its weights."""
        return self.batch, self.inputs, self.outputs, self.rows


def layer_products(
    config: ModelConfig, moe: bool, tensor: Number, apart: tuple[str, ...] = ()
) -> list[LayerProduct]:
    """The products of a layer's weights on one device of `tensor`, in order, each of one row.

    Matrices of one input are multiplied as one, but for those whose names begin as in `apart`.
    """
    products: dict[str, LayerProduct] = {}
    for stack in block_stacks(config, moe):
        name = stack.name
        key = name if name.startswith(apart) else SAME_INPUT.get(name, name)
        product = LayerProduct(name, stack, *matrix_of_device(config, stack, tensor))
        if first := products.get(key):
            both = f"{first.name}+{name.rpartition('_')[2]}"
            product = replace(first, name=both, outputs=first.outputs + product.outputs)
        products[key] = product
    return list(products.values())


@lru_cache(maxsize=8)
def step_products(step: StepSizes, moe: bool) -> tuple[LayerProduct, ...]:
    """Return a layer's products in a training step, with their rows.

    The trainer keeps the products of shared experts apart, and of its experts' batches.

    A capacity fills the rows of experts up; else their load is `moe.skew`.
    """
    experts: tuple[str, ...] = ("shared_",) if step.is_own_trainer else ()
    if moe and step.is_own_trainer and not has_kernels(step):
        experts += ("expert_",)
    products = layer_products(step.config, moe, step.shape.tensor, ("q_a", "kv_a", *experts))
    return tuple(_with_rows(step, product) for product in products)


def _with_rows(step: StepSizes, product: LayerProduct) -> LayerProduct:
    if not product.stack.experts:
        parts = 1 if product.stack.over_tensor else step.stream_parts
        return replace(product, rows=step.tokens / parts)
    moe, local = step.experts, -(-step.experts.n_experts // step.shape.expert)
    if moe.capacity_factor is not None:
        return replace(product, batch=local, rows=exchanged_rows(step) / local)
    return replace(product, batch=local, rows=expert_load(step) / local, grouped=True)


def forward(step: StepSizes, product: LayerProduct, phase: Phase, times: Number = 1) -> Kernel:
    """The product itself; `times` is 0 where it does not run."""
    halves = product.outputs / (1 + step.config.is_gated)
    beside = 0 if product.stack.is_last else halves * product.rows  # hidden units
    return _kernel(step, product, product.name, product.forward, phase, times, beside)


def of_inputs(step: StepSizes, product: LayerProduct) -> Kernel:
    """The product that gives the gradient of its input."""
    each = product.inputs * product.rows  # of the activation, and its gradients
    beside = 2 * (1 + step.config.is_gated) * each * product.stack.is_last
    return _kernel(step, product, f"d {product.name}", product.of_inputs, "backward", 1, beside)


def of_weights(step: StepSizes, product: LayerProduct) -> Kernel:
    """The product that gives the gradient of its weights."""
    times = step.trains_all
    return _kernel(step, product, f"w {product.name}", product.of_weights, "backward", times)


def _kernel(
    step: StepSizes,
    product: LayerProduct,
    name: str,
    dims: Dims,
    phase: Phase,
    times: Number,
    beside: Number = 0,
) -> Kernel:
    """A product; the trainer's kernels of experts read and write so many elements `beside` in each
    group, for the activation that is their end."""
    origin = Origin(phase, f"layers/{product.part}")
    own = product.grouped and step.is_own_trainer
    dtype = step.run.precision.between if own else ""  # whose grouped kernels have no 8 bits
    made = matmul(step, f"{phase} {name}", origin, dims, times, dtype=dtype)
    if not product.grouped:
        return made
    more = beside * product.batch * times * step.itemsize * has_kernels(step)
    return replace(made, kind="grouped", bytes=made.bytes + more)


def matmul(
    step: StepSizes,
    name: str,
    origin: Origin,
    dims: Dims,
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
