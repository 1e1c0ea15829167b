"""What the loop trains: a state, a step and data, ours or anybody's."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from jax.sharding import Mesh


@dataclass(frozen=True, eq=False)
class Training:
    """A state, a jitted step and data: what `scaling train FILE.py:run` asks of `run(mesh)`.

    >>> import jax, jax.numpy as jnp
    >>> import scaling as sc
    >>> step = jax.jit(lambda w, x: (w - 0.1 * x, {"loss": jnp.sum(w)}), donate_argnums=0)
    >>> training = sc.Training(state=jnp.ones(3), step=step, data=[jnp.ones(3)] * 10)
    >>> training.state.shape, len(training.data)
    ((3,), 10)

    Args:
        state: pytree of arrays, all that a step changes; or, with `init`, of their shapes.
        step: `jax.jit(...)`: step(state, batch) -> (state, metrics). Metrics are the loss, or a
            pytree of scalars and arrays by name of which one is `loss`.
        data: an iterable of batches, any pytrees of arrays. Their position is saved where the
            iterator has `get_state()` and `set_state(state)`, as grain's have; else a resumed run
            draws anew what it has seen.
        init: makes the state, where `state` has shapes with shardings only.
        place: puts a batch on the devices; None: as jit does.
        evaluate: figures of a state by name, every `train.eval_every` steps.
        tokens: of one step, all devices; None: not counted.
        model_flops: of one step, all devices, for MFU.
        restored: arrays of a checkpoint by name, and the run.json that it was saved with -> those
            that go on; None: they are the same.
        compiled: the program of `step`, once it is compiled.
    """

    state: Any
    step: Any
    data: Any
    init: Callable[[], Any] | None = None
    place: Callable[[Any], Any] | None = None
    evaluate: Callable[[Any], Mapping[str, float]] | None = None
    tokens: int | None = None
    model_flops: float | None = None
    restored: Callable[[dict[str, Any], Mapping[str, Any]], dict[str, Any]] | None = None
    compiled: Any = None


class Plan(Protocol):
    """What is known of a run before anything is compiled."""

    @property
    def run(self) -> Any:
        """Its name, its run.json, and when to save and to evaluate."""

    @property
    def mesh(self) -> Mesh:
        """The devices that it runs on."""

    @property
    def sums(self) -> Mapping[str, Any] | None:
        """Return sums of the files of its data."""
