"""The training step, a pure jitted function of state and batch: the program that is priced.

    loss, gradients = mean over microbatches
    parameters, optimiser state = AdamW, Lion, Adafactor or Muon (gradients)
    running mean = decay running mean + (1 - decay) parameters          if `train.ema` says so

Only trained parameters have gradients and optimiser state (scaling/training/optim/trained.py).
"""

# Dims: M microbatches, B sequences of one microbatch, S sequence

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.sharding import PartitionSpec as P

from scaling.models.execution import DTYPES, Execution
from scaling.models.pipeline.loss import pipeline_loss
from scaling.models.transformer import Transformer
from scaling.models.zero import all_gather_params
from scaling.run import Batch, Run
from scaling.run.optimizers import optimizer_of
from scaling.training.gradients import Tokens, normalized, objective, output_and_gradients
from scaling.training.monitor.layers import layer_gradient_norms, routing_metrics, with_updated_bias
from scaling.training.optim.optimizer import check_groups, make_optimizer, schedule
from scaling.training.optim.trained import as_stored, joined, trained_mask, trained_part


class TrainState(NamedTuple):
    """Everything that a step changes."""

    step: jax.Array  # int32 scalar: finished steps
    params: Transformer  # float32 (frozen matrices maybe bf16), sharded by the rules
    optimizer: optax.OptState  # sharded like the parameters; of the trained ones
    ema: Transformer | None = None  # running mean of the trained parameters


def init_state(run: Run, execution: Execution) -> TrainState:
    """A fresh state; the same numbers on every mesh. Call it inside jit, under the mesh."""
    return state_of(Transformer(run.model, execution, jax.random.key(run.train.seed)), run)


def state_of(params: Transformer, run: Run) -> TrainState:
    """The state before the first step, from these parameters; frozen ones in their format."""
    mask = trained_mask(params, run.train)
    params = as_stored(params, mask, DTYPES[params.execution.frozen])
    trained = trained_part(params, mask)
    check_groups(trained, run.train)
    state = make_optimizer(run.train, optimizer_of(run)).init(trained)
    mean = None if run.train.ema is None else jax.tree.map(jnp.copy, trained)
    return TrainState(jnp.zeros((), jnp.int32), params, state, mean)


def abstract_state(run: Run, execution: Execution) -> TrainState:
    """Shapes, formats and shardings of the state, without making it; under any mesh."""
    mesh = _current_mesh()

    def placed(leaf: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
        spec = leaf.sharding.spec if leaf.sharding is not None else P()  # scalars have none
        return leaf.update(sharding=jax.NamedSharding(mesh, spec))

    return jax.tree.map(placed, jax.eval_shape(lambda: init_state(run, execution)))


def abstract_arguments(run: Run, execution: Execution) -> tuple[TrainState, Tokens]:
    """Shapes, formats and shardings of the arguments of a run's step; under any mesh."""
    packed = run.train.documents == "packed"
    return abstract_state(run, execution), abstract_tokens(run.batch, execution, packed)


def abstract_tokens(batch: Batch, execution: Execution, packed: bool = False) -> Tokens:
    """Shapes and shardings of one step's input, of packed documents or not."""
    shape = (batch.microbatches, batch.global_batch // batch.microbatches, batch.seq_len)
    spec = execution.spec(None, "batch", "sequence")
    sharding = jax.NamedSharding(_current_mesh(), spec)
    leaf: Any = jax.ShapeDtypeStruct(shape, jnp.int32, sharding=sharding)
    if not packed:
        return Tokens(leaf, leaf)
    return Tokens(leaf, leaf, leaf, leaf.update(dtype=jnp.float32))


def train_step(state: TrainState, tokens: Tokens, run: Run) -> tuple[TrainState, dict]:
    """One optimiser step.

    Returns:
        The next state, and float32 scalars: `loss` before the step, `grad_norm` before clipping,
        `learning_rate` used; with experts also what `routing_metrics` says. On request
        `layer_grad_norms` [L].
    """
    train = run.train
    trained = trained_mask(state.params, train)
    output, grads = output_and_gradients(state.params, tokens, train.z_loss, trained)
    with jax.named_scope("optimizer"):
        part = trained_part(state.params, trained)
        optimizer = make_optimizer(train, optimizer_of(run))
        updates, opt_state = optimizer.update(grads, state.optimizer, part)
        part = optax.apply_updates(part, updates)
        if output.routing is not None:
            part = with_updated_bias(part, output.routing.load_E)
        mean = None
        if train.ema is not None:
            mean = optax.tree.update_moment(part, state.ema, train.ema, 1)
    metrics = {
        "loss": output.loss,
        "grad_norm": optax.tree.norm(grads),
        "learning_rate": jnp.asarray(schedule(train)(state.step), jnp.float32),
        **routing_metrics(state.params, output.routing),
    }
    if train.log_layer_norms:
        metrics["layer_grad_norms"] = layer_gradient_norms(state.params, grads)
    params = part if trained is None else joined(part, state.params)
    return TrainState(state.step + 1, params, opt_state, mean), metrics


def eval_step(params: Transformer, tokens: Tokens) -> jax.Array:
    """Mean loss of one step's worth of tokens, without learning: float32 scalar."""
    gathered = all_gather_params(params, params.execution)
    tokens = normalized(tokens)
    if params.execution.rules.axes("layers"):
        losses, _ = pipeline_loss(params, tokens.inputs, tokens.targets, gathered, tokens.weights)
        return losses[1]
    model = params if gathered is None else gathered
    return jax.lax.map(lambda one: objective(model, one)[1].loss, tokens).mean()


def jitted_step(run: Run, compiler_options: Mapping[str, Any] | None = None) -> jax.stages.Wrapped:
    """`train_step` of a run, with the state donated: `step(state, tokens)`."""

    def step(state: TrainState, tokens: Tokens) -> tuple[TrainState, dict]:
        return train_step(state, tokens, run)

    options = dict(compiler_options) if compiler_options else None
    return jax.jit(step, donate_argnums=0, compiler_options=options)


def _current_mesh() -> Any:
    """The mesh that is set; an abstract one if there are no devices."""
    mesh = jax.sharding.get_mesh()
    return jax.sharding.get_abstract_mesh() if mesh.empty else mesh
