"""Low-rank adapters beside the matrices of a block (`scaling.models.lora`), sharded by the rules.

    matrix       query_DNK ("embed", "heads", None)      out_NKD ("heads", None, "embed")
    a            [D, R]    ("embed", "rank")             [N, K, R] ("heads", None, "rank")
    b            [R, N, K] ("rank", "heads", None)       [R, D]    ("rank", "embed")

Adapters of several matrices with one input read it once. Where the contraction of a runs over
`tensor`, its partial results [B, S, R] are summed before b: a small reduce-scatter of their own.
"""

# Dims: B batch, S sequence, D model, N heads, K head dim, R rank, C adapters of one input

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from scaling.meshes.rules import Dims
from scaling.models.execution import Execution, spec_of
from scaling.models.initializers import constant, matrix
from scaling.models.sharding import project

FIRST_KEY = 64  # of fold_in: beyond the keys that any block splits


class Adapter(nnx.Module):
    """The two factors of one matrix's change."""

    def __init__(self, execution: Execution, key: jax.Array, w: nnx.Param):
        lora, dims = execution.lora, w.dims
        n = len(dims) - 1 if dims[-1] == "embed" else 1  # input dimensions: all before d_model
        assert lora is not None
        inputs, outputs = w[...].shape[:n], w[...].shape[n:]
        # As loralib: uniform within 1 / sqrt(inputs) has this deviation.
        std = 1 / math.sqrt(3 * math.prod(inputs))
        rules = execution.rules
        self.a = matrix(rules, key, (*inputs, lora.rank), (*dims[:n], "rank"), std)
        self.b = constant(rules, 0.0, (lora.rank, *outputs), ("rank", *dims[n:]))


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
    """Stacked matrices plus what their adapters change."""
    lora, i, o = execution.lora, _letters(adapter.a.dims[:-1]), _letters(adapter.b.dims[1:])
    assert lora is not None
    change_L = jnp.einsum(
        f"l{i}r,lr{o.upper()}->l{i}{o.upper()}",
        adapter.a[...],
        adapter.b[...],
        out_sharding=spec_of(w_L),
        precision=jax.lax.Precision.HIGHEST,
    )
    return w_L + lora.scale * change_L


def _letters(dims: Sequence[str | None]) -> str:
    """Letters of one dimension or two in an equation."""
    return "nk"[: len(dims)]
