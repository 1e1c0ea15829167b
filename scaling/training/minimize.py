"""A `Training` of a loss and an optax chain, for a model that has no step of its own."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from scaling.training.protocol import Training
from scaling.training.weights.naming import leaf_names

CUT = "fsdp"  # over which parameters are


class State(NamedTuple):
    """What the step of `minimize` changes."""

    params: Any
    optimizer: optax.OptState


def minimize(
    loss: Callable[[Any, Any], Any],
    params: Any,
    optimizer: optax.GradientTransformation,
    data: Any,
    mesh: Mesh,
    rows: tuple[str, ...],
    **more: Any,
) -> Training:
    """The training of a loss and an optax chain; see `scaling.minimize`."""
    whole = NamedSharding(mesh, P())
    homes = jax.tree.map(lambda x: _home(x, mesh), params)
    params = jax.tree.map(jax.device_put, params, homes)

    pairs = zip(jax.tree.leaves(params), jax.tree.leaves(homes), strict=True)
    named = dict(zip(leaf_names(params), pairs, strict=True))

    def home_of(name: str, leaf: Any) -> NamedSharding:
        """Where the parameter lies whose name a moment's ends with, and whose shape it has."""
        parts = name.split("/")
        for end in ("/".join(parts[i:]) for i in range(len(parts) + 1)):
            if end in named and named[end][0].shape == leaf.shape:
                return named[end][1]
        return whole

    like = jax.eval_shape(optimizer.init, params)
    found = map(home_of, leaf_names(like), jax.tree.leaves(like))
    moments = jax.tree.unflatten(jax.tree.structure(like), found)
    state = State(params, jax.jit(optimizer.init, out_shardings=moments)(params))

    def both(params: Any, batch: Any) -> tuple[jax.Array, Any]:
        found = loss(params, batch)
        return found if isinstance(found, tuple) else (found, {})

    def step(state: State, batch: Any) -> tuple[State, dict[str, Any]]:
        (value, metrics), gradients = jax.value_and_grad(both, has_aux=True)(state.params, batch)
        with jax.named_scope("optimizer"):
            updates, moments = optimizer.update(gradients, state.optimizer, state.params)
            params = optax.apply_updates(state.params, updates)
        norm = optax.tree.norm(gradients)
        return State(params, moments), {"loss": value, "grad_norm": norm, **metrics}

    cut = NamedSharding(mesh, P(tuple(axis for axis in rows if axis in mesh.shape)))
    lie = State(homes, moments)
    jitted = jax.jit(step, in_shardings=(lie, cut), out_shardings=(lie, None), donate_argnums=0)
    return Training(state=state, step=jitted, data=data, **more)


def _home(param: Any, mesh: Mesh) -> NamedSharding:
    """Where a parameter lies: where it is on a mesh, else cut over `fsdp` where that divides it."""
    own = getattr(param, "sharding", None)
    if isinstance(own, NamedSharding) and own.mesh.size == mesh.size:
        return own
    n, shape = mesh.shape.get(CUT, 1), jnp.shape(param)
    dims = [d for d in range(len(shape)) if n > 1 and shape[d] and shape[d] % n == 0]
    if not dims:
        return NamedSharding(mesh, P())
    longest = max(dims, key=lambda d: shape[d])
    return NamedSharding(mesh, P(*[CUT if d == longest else None for d in range(len(shape))]))
