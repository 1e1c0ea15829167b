"""The experts' MLPs on the rows that a device has received, each expert on its own rows.

    capacity factor    batched products of equal groups, empty rows included
    else               rows sorted by expert: kernels of our own (`models/moe/grouped_mlps.py`), or
                       grouped products (`models/moe/grouped_matmul.py`); both stay in bf16 under
                       precision.compute "fp8"

A row's weight multiplies its hidden units, before the last product: so no gradient needs the
results, and they are neither saved nor recomputed.
"""

# Dims: T tokens, R rows, P devices along expert, E experts of this device, C rows of one group,
# D model, F hidden units of an expert (those of this device)

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from scaling.meshes.rules import Dims
from scaling.models import float8
from scaling.models.accounting.expert_buffers import kept_rows, kernels_divide
from scaling.models.config import ModelConfig, Moe
from scaling.models.execution import Execution
from scaling.models.mlp import ACTIVATIONS, gated_units
from scaling.models.moe.grouped_matmul import Implementation, grouped_matmul
from scaling.models.moe.grouped_mlps import NAMES, GroupedMlps, grouped_mlps
from scaling.models.moe.triton_tiles import Load, Rows
from scaling.models.partial_sums import all_gather_weight
from scaling.models.remat import regathered

DIMS: dict[str, Dims] = {  # logical dimensions of the weights, by name
    "router": ("embed", None),
    "up": ("experts", "embed", "mlp"),
    "gate": ("experts", "embed", "mlp"),
    "down": ("experts", "mlp", "embed"),
    "shared_up": ("embed", "mlp"),
    "shared_gate": ("embed", "mlp"),
    "shared_down": ("mlp", "embed"),
}
BIASES: dict[str, Dims] = {  # and of vectors, where the model has biases
    "logit_bias": (None,),
    "up_bias": ("experts", "mlp"),
    "gate_bias": ("experts", "mlp"),
    "down_bias": ("experts", None),
}
Weights = dict[str, jax.Array]  # by name of both, as stored on this device; and "bias"
OfRows = Callable[[jax.Array], jax.Array]  # a vector of each expert [E, X] for each of its rows
Product = Callable[[jax.Array, jax.Array], jax.Array]  # rows, gathered weight


@dataclass(frozen=True)
class LocalExperts:
    """The experts of one device, inside a `shard_map`."""

    config: ModelConfig
    execution: Execution
    weights: Weights

    @property
    def moe(self) -> Moe:
        """The shapes of the mixture."""
        assert self.config.moe is not None
        return self.config.moe

    @property
    def has_kernels(self) -> bool:
        """True if kernels of our own multiply the rows: on NVIDIA's GPUs from Ampere on."""
        tensor = self.execution.rules.mesh.tensor
        return self.execution.grouped_kernel == "triton" and kernels_divide(self.config, tensor)

    def by_kernels(self, x_SD: jax.Array, rows: Rows, row_KS: jax.Array, tokens: int) -> jax.Array:
        """The sums of each token's experts [S, D], by `grouped_mlps`; `tokens` of one device."""
        moe, execution, biases = self.moe, self.execution, self.weights
        names = ("up", "gate") if self.config.is_gated else ("up",)
        stored = {name: self.weights[name] for name in (*names, "down")}
        total, even = rows.source_R.size, tokens * moe.experts_per_token
        kept = kept_rows(moe, tokens, execution.rules.mesh.expert)
        load = Load(min(total, moe.skew * even), execution.precision)
        how = GroupedMlps(self.config.mlp, load, kept)

        def multiply(x_SD: jax.Array, stored: Weights, rows: Rows) -> jax.Array:
            given = {name: self._gathered(name, w) for name, w in stored.items()}
            of_units = tuple(given[name] for name in names)
            added = (_varying_as(x_SD, biases[f"{n}_bias"]) for n in names if "up_bias" in biases)
            return grouped_mlps(how, x_SD, rows, row_KS, of_units, tuple(added), given["down"])

        y_SD = regathered(execution, multiply, NAMES)(x_SD, stored, rows)
        if "down_bias" not in biases:
            return y_SD
        # of each token the sum of weight x bias over its rows here, once along tensor
        weight_KS = rows.weight_R.at[row_KS].get(mode="fill", fill_value=0)
        ends_E = jnp.cumsum(rows.sizes_E)
        expert_KS = (row_KS[..., None] >= ends_E).sum(axis=-1)  # E where there is no row
        weight_KSE = jax.nn.one_hot(expert_KS, len(ends_E)) * weight_KS[..., None]
        bias_SD = jnp.einsum("kse,ed->sd", weight_KSE, biases["down_bias"].astype(jnp.float32))
        if over := execution.rules.axes("mlp"):
            bias_SD = jnp.where(jax.lax.axis_index(over) == 0, bias_SD, 0)
        return (y_SD.astype(jnp.float32) + bias_SD).astype(y_SD.dtype)

    def grouped(self, rows_RD: jax.Array, weights_R: jax.Array, sizes_E: jax.Array) -> jax.Array:
        """The experts' results for rows sorted by expert: [R, D], not defined for unused rows.

        Args:
            weights_R: of the rows, float32.
            sizes_E: int32, rows of each of this device's experts; all others are unused.
        """
        how: Implementation = "ragged" if self.execution.grouped_kernel == "ragged" else "tiles"
        product = lambda x, w: grouped_matmul(x, w, sizes_E, how, self.execution.precision)
        number_R = jnp.arange(rows_RD.shape[0])
        is_used_R = number_R < sizes_E.sum()

        def of_rows(vectors_EX: jax.Array) -> jax.Array:
            expert_R = (number_R[:, None] >= jnp.cumsum(sizes_E)).sum(axis=1)
            return vectors_EX[jnp.minimum(expert_R, len(sizes_E) - 1)]

        return self._mlp(product, rows_RD, weights_R, is_used_R, of_rows)

    def padded(self, rows_RD: jax.Array, weights_R: jax.Array) -> jax.Array:
        """The same with a capacity factor: rows are P groups by sender, in each E of C rows."""
        devices, local = self.execution.rules.mesh.expert, self.weights["up"].shape[0]

        def by_expert(y_RX: jax.Array) -> jax.Array:
            y_PECX = y_RX.reshape(devices, local, -1, y_RX.shape[-1])
            return y_PECX.swapaxes(0, 1).reshape(local, -1, y_RX.shape[-1])

        weights_EC = by_expert(weights_R[:, None])[:, :, 0]
        product, of_rows = self._product("ecd,edf->ecf"), lambda vectors_EX: vectors_EX[:, None]
        out_ECD = self._mlp(product, by_expert(rows_RD), weights_EC, of_rows=of_rows)
        out_EPCD = out_ECD.reshape(local, devices, -1, out_ECD.shape[-1])
        return out_EPCD.swapaxes(0, 1).reshape(rows_RD.shape)

    def shared(self, x_TD: jax.Array) -> jax.Array:
        """The result of the experts that every token passes: [T, D], partial sums over tensor."""
        return self._mlp(self._product("td,df->tf"), x_TD, prefix="shared_")

    def times(
        self, x: jax.Array, name: str, product: Product, token_axes: Sequence[str] | None = None
    ) -> jax.Array:
        """The product of `x` and the weight `name` of `DIMS`, all-gathered in compute format.

        For the backward pass weights are gathered again (`scaling.models.remat.regathered`).
        """
        multiply = lambda x, w: product(x, self._gathered(name, w, token_axes))
        return regathered(self.execution, multiply)(x, self.weights[name])

    def _gathered(
        self, name: str, w: jax.Array, token_axes: Sequence[str] | None = None
    ) -> jax.Array:
        """A stored weight, all-gathered in compute format, the router in float32, for its product
        with tokens that lie on `token_axes` (None: those of batch and sequence)."""
        execution, rules = self.execution, self.execution.rules
        if token_axes is None:
            token_axes = *rules.axes("batch"), *rules.axes("sequence")
        dtype = jnp.float32 if name == "router" else None
        return all_gather_weight(execution, w, DIMS[name], token_axes, dtype=dtype)

    def _product(self, equation: str) -> Product:
        """Products of this device's rows and weights; in 8 bits under "fp8"."""
        execution = self.execution
        if execution.compute == "fp8":
            return functools.partial(float8.local_product, equation)
        return functools.partial(
            jnp.einsum,
            equation,
            precision=execution.precision,
            preferred_element_type=execution.dtype,
        )

    def _mlp(
        self,
        product: Product,
        x: jax.Array,
        row_weights: jax.Array | None = None,
        is_used_R: jax.Array | None = None,
        of_rows: OfRows = lambda vectors: vectors,
        prefix: str = "",
    ) -> jax.Array:
        """(act(x gate) * (x up) * weight) down, row by row; unused rows count as zero.

        They are masked before anything is computed with them: they may not be numbers. Biases are
        added in float32; that of `down`, once along tensor, is weighed as the rows are.
        """
        kind, rules, biases = self.config.mlp, self.execution.rules, self.weights

        def biased(y: jax.Array, name: str) -> jax.Array:
            if name not in biases:
                return y
            return (y.astype(jnp.float32) + of_rows(biases[name])).astype(y.dtype)

        times = lambda x, name: self.times(x, prefix + name, product)

        def hidden(up: jax.Array, gate: jax.Array | None) -> jax.Array:
            up = biased(up, "up_bias")
            gate = None if gate is None else biased(gate, "gate_bias")
            if is_used_R is not None:
                used = is_used_R[:, None]
                up = jnp.where(used, up, 0)
                gate = None if gate is None else jnp.where(used, gate, 0)
            h = ACTIVATIONS[kind](up) if gate is None else gated_units(kind)(gate, up)
            if row_weights is not None:
                h = (h.astype(jnp.float32) * row_weights[..., None]).astype(self.execution.dtype)
            return h

        if row_weights is not None:
            x = checkpoint_name(x, "expert_input")
        up = checkpoint_name(times(x, "up"), "mlp_up")
        is_gated = self.config.is_gated
        gate = checkpoint_name(times(x, "gate"), "mlp_gate") if is_gated else None
        y = times(jax.checkpoint(hidden, prevent_cse=False)(up, gate), "down")
        if "down_bias" not in biases or row_weights is None:
            return y
        bias = of_rows(biases["down_bias"])
        if over := rules.axes("mlp"):
            bias = jnp.where(jax.lax.axis_index(over) == 0, bias, 0)
        bias = bias * row_weights[..., None]
        if is_used_R is not None:
            bias = jnp.where(is_used_R[:, None], bias, 0)
        return (y.astype(jnp.float32) + bias).astype(y.dtype)


def _varying_as(x: jax.Array, y: jax.Array) -> jax.Array:
    """`y` marked varying over all mesh axes that `x` varies over; its gradient is summed there."""
    axes = jax.typeof(x).manual_axis_type.varying - jax.typeof(y).manual_axis_type.varying
    return jax.lax.pcast(y, tuple(axes), to="varying") if axes else y
