"""What `scaling train` takes, made of a loss and an optax chain."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from scaling.api.public_api import entrance

if TYPE_CHECKING:
    import jax
    import optax

    from scaling.training.protocol import Training


@entrance
def minimize(
    loss: Callable[[Any, Any], Any],
    params: Any,
    optimizer: "optax.GradientTransformation",
    data: Any,
    mesh: "jax.sharding.Mesh",
    *,
    rows: Iterable[str] = ("data", "fsdp"),
    **more: Any,
) -> "Training":
    """Return the training that minimises a loss by an optax chain, sharded over a mesh.

    Parameters that lie on the mesh stay as they are; each other one is cut over an axis `fsdp`
    along its longest dim that this divides, or lies whole on every device. Moments lie as their
    parameters do.

    >>> import jax, jax.numpy as jnp, optax
    >>> import scaling as sc
    >>> mesh = jax.make_mesh((1,), ("data",), devices=jax.devices()[:1])
    >>> loss = lambda w, x: jnp.mean((x @ w) ** 2)
    >>> training = sc.minimize(loss, jnp.ones((4, 2)), optax.adam(1e-3), [jnp.ones((8, 4))], mesh)
    >>> _, metrics = training.step(training.state, jnp.ones((8, 4)))
    >>> sorted(metrics)
    ['grad_norm', 'loss']

    Args:
        loss: loss(params, batch) -> a scalar, or (a scalar, other metrics by name).
        params: pytree of arrays, all of them trained: of Flax, NNX, Equinox or your own.
        optimizer: any optax chain; `optax.partition` makes groups of parameters.
        data, more: as of `Training`: batches; tokens, evaluate (of a state with `params`).
        mesh: over which the state and the batches lie.
        rows: axes over which batches are cut along their first dim, those that the mesh has.
    """
    from scaling.training import minimize as home

    return home.minimize(loss, params, optimizer, data, mesh, tuple(rows), **more)
