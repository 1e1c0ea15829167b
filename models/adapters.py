"""Low-rank adapters beside the matrices of a block (`scaling.models.lora`), sharded by the rules.

    matrix       query_DNK ("embed", "heads", None)      out_NKD ("heads", None, "embed")
    a            [D, R]    ("embed", "rank")             [N, K, R] ("heads", None, "rank")
    b            [R, N, K] ("rank", "heads", None)       [R, D]    ("rank", "embed")

Each expert has factors of its own, [E, ...]. They are added to its matrix, shard by shard, before
it is gathered and multiplied, as no kernel multiplies few columns of many groups well:

    up_EDF + alpha / rank a_EDR b_ERF        in the format of products; its gradient is a layer's

Adapters of several matrices with one input read it once. Where the contraction of a runs over
`tensor`, its partial results [B, S, R] are summed before b: a small reduce-scatter of their own.
"""

# Dims: B batch, S sequence, D model, N heads, K head dim, R rank, C adapters of one input,
# E experts, I inputs, O outputs of one

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import PartitionSpec as P

from scaling.meshes.rules import Dims
from scaling.models.execution import Execution, axes_of, spec_of
from scaling.models.initializers import constant, matrix
from scaling.models.pipeline.shard_map import shard_map_per_stage
from scaling.models.sharding import project

FIRST_KEY = 64  # of fold_in: beyond the keys that any block splits


class Adapter(nnx.Module):
    """The two factors of one matrix's change."""

    def __init__(self, execution: Execution, key: jax.Array, w: nnx.Param):
        lora, e = execution.lora, len(experts_of(w.dims))
        each, dims = w.dims[:e], w.dims[e:]
        n = len(dims) - 1 if dims[-1] == "embed" else 1  # input dimensions: all before d_model
        assert lora is not None
        count, inputs, outputs = w[...].shape[:e], w[...].shape[e : e + n], w[...].shape[e + n :]
        # As loralib: uniform within 1 / sqrt(inputs) has this deviation.
        std = 1 / math.sqrt(3 * math.prod(inputs))
        rules = execution.rules
        a, b = (*count, *inputs, lora.rank), (*count, lora.rank, *outputs)
        self.a = matrix(rules, key, a, (*each, *dims[:n], "rank"), std)
        self.b = constant(rules, 0.0, b, (*each, "rank", *dims[n:]))


class Adapters(nnx.Module):
    """The adapters of one block part, by the name of their matrix."""

    def __init__(self, execution: Execution, key: jax.Array, weights: Mapping[str, nnx.Param]):
        for number, (name, w) in enumerate(weights.items(), FIRST_KEY):
            setattr(self, name, Adapter(execution, jax.random.fold_in(key, number), w))


def adapters_of(execution: Execution, key: jax.Array, module: nnx.Module) -> Adapters | None:
    """Adapters of the module's own matrices that are targets; None without any."""
    targets = execution.lora.targets if execution.lora else ()
    weights = {n: w for n, w in vars(module).items() if n.rpartition("_")[0] in targets}
    params = {n: w for n, w in weights.items() if isinstance(w, nnx.Param)}
    return Adapters(execution, key, params) if params else None


def adapted(
    adapters: Adapters | None,
    execution: Execution,
    x_BSD: jax.Array,
    results: Mapping[str, jax.Array],
    out: Dims,
    partial: bool = False,
) -> list[jax.Array]:
    """The products of x and some matrices, by their names, each with its adapter's result added.

    Args:
        x_BSD: their input, as `project` has it.
        out, partial: as of `project`; `out` are the logical dimensions of all results.
    """
    own = {n: getattr(adapters, n) for n in results if hasattr(adapters, n)}
    if not own:
        return list(results.values())
    lora = execution.lora
    if execution.compute == "fp8":  # the adapters' products stay in bf16
        execution = replace(execution, compute="bf16")
    assert lora is not None
    weights = tuple(adapter.a[...][..., None, :] for adapter in own.values())
    *dims, _ = next(iter(own.values())).a.dims
    i, low = _letters(dims), (*out[:2], None, None)
    equation, dims = f"bs{i},{i}cr->bscr", (*dims, None, "rank")
    h_BSCR = lora.scale * project(execution, equation, x_BSD, weights, dims, low, partial)
    changes = {}
    for number, (name, adapter) in enumerate(own.items()):
        h_BSR, b, o = h_BSCR[:, :, number], adapter.b, _letters(adapter.b.dims[1:])
        changes[name] = project(execution, f"bsr,r{o}->bs{o}", h_BSR, b[...], b.dims, out)
    return [y + changes[name] if name in changes else y for name, y in results.items()]


def adapted_product(
    module: Any, equation: str, x: jax.Array, name: str, out: Dims, partial: bool = False
) -> jax.Array:
    """The product of x and the module's matrix of that name, with its adapter's; as `project`."""
    w = getattr(module, name)
    y = project(module.execution, equation, x, w[...], w.dims, out, partial)
    return adapted(module.adapters, module.execution, x, {name: y}, out, partial)[0]


def merged(params: Any) -> Any:
    """The model with every adapter added to its matrix, in float32, and without adapters."""
    return _without_adapters(params, _sum)


def without_adapters(params: Any) -> Any:
    """The model as it is before adapters are trained; also of `jax.ShapeDtypeStruct`."""
    return _without_adapters(params, lambda w_L, adapter, execution: w_L)


def _without_adapters(params: Any, changed: Callable) -> Any:
    params = jax.tree.map(lambda leaf: leaf, params)  # a copy: the argument stays as it is
    modules: list[Any] = [module for _, module in nnx.iter_modules(params)]
    for module in modules:
        adapters = getattr(module, "adapters", None)
        if adapters is None:
            continue
        for name in [n for n, value in vars(adapters).items() if isinstance(value, Adapter)]:
            w, adapter = getattr(module, name), getattr(adapters, name)
            setattr(module, name, w.replace(changed(w.get_value(), adapter, module.execution)))
        module.adapters = None
    return params


def _sum(w_L: jax.Array, adapter: Adapter, execution: Execution) -> jax.Array:
    lora, e = execution.lora, experts_of(adapter.a.dims)
    i, o = _letters(adapter.a.dims[len(e) : -1]), _letters(adapter.b.dims[len(e) + 1 :])
    assert lora is not None
    change_L = jnp.einsum(
        f"l{e}{i}r,l{e}r{o.upper()}->l{e}{i}{o.upper()}",
        adapter.a[...],
        adapter.b[...],
        out_sharding=spec_of(w_L),
        precision=jax.lax.Precision.HIGHEST,
    )
    return w_L + lora.scale * change_L


def experts_of(dims: Dims) -> str:
    """A letter in an equation for the experts that arrays have one of each for; "" for none."""
    return "e" * (dims[0] == "experts")


def expert_weight(module: Any, name: str) -> jax.Array:
    """The stored matrices of a module's experts, with their adapters where they have them."""
    w, adapter = getattr(module, name)[...], getattr(module.adapters, name, None)
    if adapter is None:
        return w
    return _with_factors(module.execution, w, adapter.a[...], adapter.b[...])


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _with_factors(
    execution: Execution, w_EIO: jax.Array, a_EIR: jax.Array, b_ERO: jax.Array
) -> jax.Array:
    """Shards of w + scale a b, which need those of a and b alone, in a format of products."""

    def local(w: jax.Array, a: jax.Array, b: jax.Array) -> jax.Array:
        return (w + scale * _exact("eir,ero->eio", a, b)).astype(execution.dtype)

    assert execution.lora is not None
    scale, arrays = execution.lora.scale, (w_EIO, a_EIR, b_ERO)
    specs = tuple(map(spec_of, arrays))
    shape = lambda w, *_: w.astype(execution.dtype)
    mapped = shard_map_per_stage(execution.rules, local, specs, specs[0], False, shape)
    return mapped(*arrays)


def _gradients_of_factors(execution: Execution, saved: tuple, dw_EIO: jax.Array) -> tuple:
    """Gradients of a and b, from a shard of the matrix's gradient, which may be partial sums."""
    assert execution.lora is not None
    scale, (w_EIO, a_EIR, b_ERO) = execution.lora.scale, saved
    partial = spec_of(dw_EIO).unreduced

    def local(dw: jax.Array, a: jax.Array, b: jax.Array) -> tuple[jax.Array, jax.Array]:
        da, db = _exact("eio,ero->eir", dw, b), _exact("eio,eir->ero", dw, a)
        summed = lambda x, like: jax.lax.psum(x, tuple(axes_of(dw_EIO) - axes_of(like)))
        return scale * summed(da, a_EIR), scale * summed(db, b_ERO)

    out = tuple(P(*spec_of(x).partitions, unreduced=partial) for x in (a_EIR, b_ERO))
    specs = spec_of(dw_EIO), spec_of(a_EIR), spec_of(b_ERO)
    shapes = lambda _, *factors: tuple(
        jnp.zeros(x.shape, x.dtype, out_sharding=spec) for x, spec in zip(factors, out, strict=True)
    )
    mapped = shard_map_per_stage(execution.rules, local, specs, out, False, shapes)
    da, db = mapped(dw_EIO, a_EIR, b_ERO)
    return dw_EIO.astype(w_EIO.dtype), da, db


_with_factors.defvjp(
    lambda execution, w, a, b: (_with_factors(execution, w, a, b), (w, a, b)),
    _gradients_of_factors,
)


def _exact(equation: str, x: jax.Array, y: jax.Array) -> jax.Array:
    x, y = x.astype(jnp.float32), y.astype(jnp.float32)
    return jnp.einsum(equation, x, y, precision=jax.lax.Precision.HIGHEST)


def _letters(dims: Sequence[str | None]) -> str:
    """Letters of one dimension or two in an equation."""
    return "nk"[: len(dims)]
