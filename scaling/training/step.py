"""The training step, a pure jitted function of state and batch: the program that is priced.

    loss, gradients = mean over microbatches
    parameters, optimiser state = AdamW, Lion, Adafactor or Muon (gradients)
    running mean = decay running mean + (1 - decay) parameters          if `train.ema` says so

Only trained parameters have gradients and optimiser state (scaling/training/optim/trained.py).
"""

# Dims: M microbatches, B sequences of one microbatch, S sequence

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.sharding import PartitionSpec as P

from scaling.models.adapters import without_adapters
from scaling.models.execution import DTYPES, Execution
from scaling.models.initializers import is_variable
from scaling.models.pipeline.loss import pipeline_sums
from scaling.models.transformer import Transformer
from scaling.models.zero import all_gather_params
from scaling.run import Batch, Run, Train
from scaling.run.optimizers import optimizer_of
from scaling.run.reference import reference_model, stores_reference
from scaling.training.gradients import (
    Tokens,
    normalized,
    objective,
    output_and_gradients,
    pipelined,
)
from scaling.training.monitor.layers import layer_gradient_norms, routing_metrics, with_updated_bias
from scaling.training.optim.optimizer import check_groups, make_optimizer, schedule
from scaling.training.optim.trained import as_stored, joined, trained_mask, trained_part


class TrainState(NamedTuple):
    """Everything that a step changes."""

    step: jax.Array  # int32 scalar: finished steps
    params: Transformer  # float32 (frozen matrices maybe bf16), sharded by the rules
    optimizer: optax.OptState  # sharded like the parameters; of the trained ones
    ema: Transformer | None = None  # running mean of the trained parameters
    reference: Transformer | None = None  # the frozen model of `train.loss`, if it is stored


def init_state(run: Run, execution: Execution) -> TrainState:
    """A fresh state; the same numbers on every mesh. Call it inside jit, under the mesh."""
    return state_of(Transformer(run.model, execution, jax.random.key(run.train.seed)), run)


def state_of(params: Transformer, run: Run) -> TrainState:
    """The state before the first step, from these parameters; frozen ones in their format.

    A teacher has random parameters (`reference_of`).
    """
    mask = trained_mask(params, run.train)
    stored = DTYPES[params.execution.frozen]
    reference = reference_of(params, run) if stores_reference(run) else None
    params = as_stored(params, mask, stored)
    trained = trained_part(params, mask)
    check_groups(trained, run.train)
    state = make_optimizer(run.train, optimizer_of(run)).init(trained)
    mean = None if run.train.ema is None else jax.tree.map(jnp.copy, trained)
    return TrainState(jnp.zeros((), jnp.int32), params, state, mean, reference)


def reference_of(params: Transformer, run: Run) -> Transformer:
    """The frozen model of `train.loss` as it is stored: of DPO a copy of the parameters, which
    have fresh adapters if any; else random parameters of the teacher."""
    execution, config = params.execution.reference, reference_model(run)
    assert execution is not None and config is not None
    model = Transformer(config, execution, jax.random.key(run.train.seed))
    if run.train.pairs:
        copied = map(jnp.copy, jax.tree.leaves(without_adapters(params)))
        model = jax.tree.unflatten(jax.tree.structure(model), copied)
    nothing = jax.tree.map(lambda _: False, model, is_leaf=is_variable)
    return as_stored(model, nothing, DTYPES[params.execution.frozen])


def abstract_state(run: Run, execution: Execution) -> TrainState:
    """Shapes, formats and shardings of the state, without making it; under any mesh."""
    mesh = _current_mesh()

    def placed(leaf: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
        spec = leaf.sharding.spec if leaf.sharding is not None else P()  # scalars have none
        return leaf.update(sharding=jax.NamedSharding(mesh, spec))

    return jax.tree.map(placed, jax.eval_shape(lambda: init_state(run, execution)))


def abstract_arguments(run: Run, execution: Execution) -> tuple[TrainState, Tokens]:
    """Shapes, formats and shardings of the arguments of a run's step; under any mesh."""
    packed, pairs = run.train.documents == "packed", run.train.pairs
    return abstract_state(run, execution), abstract_tokens(run.batch, execution, packed, pairs)


def abstract_tokens(
    batch: Batch, execution: Execution, packed: bool = False, pairs: bool = False
) -> Tokens:
    """Shapes and shardings of one step's input, of packed documents or pairs or neither."""
    shape = (batch.microbatches, batch.global_batch // batch.microbatches, batch.seq_len)
    spec = execution.spec(None, "batch", "sequence")
    sharding = jax.NamedSharding(_current_mesh(), spec)
    leaf: Any = jax.ShapeDtypeStruct(shape, jnp.int32, sharding=sharding)
    weights = leaf.update(dtype=jnp.float32) if packed or pairs else None
    return Tokens(leaf, leaf, leaf if packed else None, weights)


def train_step(state: TrainState, tokens: Tokens, run: Run) -> tuple[TrainState, dict]:
    """One optimiser step.

    Returns:
        The next state, and float32 scalars: `loss` before the step, `grad_norm` before clipping,
        `learning_rate` used; what `scaling.models.compared` reports of `train.loss`; with experts
        also what `routing_metrics` says. On request `layer_grad_norms` [L].
    """
    train = run.train
    trained = trained_mask(state.params, train)
    output, grads = output_and_gradients(state.params, tokens, train, trained, state.reference)
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
        **output.parts,
        **routing_metrics(state.params, output.routing),
    }
    if train.log_layer_norms:
        metrics["layer_grad_norms"] = layer_gradient_norms(state.params, grads)
    params = part if trained is None else joined(part, state.params)
    return TrainState(state.step + 1, params, opt_state, mean, state.reference), metrics


def eval_step(
    train: Train, params: Transformer, tokens: Tokens, reference: Transformer | None = None
) -> jax.Array:
    """Mean loss of one step's worth of tokens, without learning: float32 scalar."""
    gathered = all_gather_params(params, params.execution)
    model = params if gathered is None else gathered
    tokens, train = normalized(tokens, train), replace(train, z_loss=0.0)
    if params.execution.rules.axes("layers"):
        _, output = pipeline_sums(model, *pipelined(model, tokens, train, reference))
        return output.loss / len(tokens.inputs)
    loss = lambda one: objective(model, one, train, reference)[1].loss
    return jax.lax.map(loss, tokens).mean()


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
