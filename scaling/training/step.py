"""The training step, a pure jitted function of state and batch: the program that is priced.

    loss, gradients = mean over microbatches
    parameters, optimiser state = AdamW, Lion, Adafactor or Muon (gradients)
    running mean = decay running mean + (1 - decay) parameters          if `train.ema` says so

Only trained parameters have gradients and optimiser state (scaling/training/optim/trained.py).

With several microbatches the gradients are accumulated as partial sums per device of `data` and
`context` (and `expert`, except for the experts' own) and reduced over these once, after the last
one; over fsdp they are reduce-scattered each time, because each device stores its shard only (under
ZeRO stage 1 once, after the last one: models/zero.py).

With experts the gradients are those of the loss plus the weighted balancing losses
(scaling/training/monitor/expert_load.py).
"""

# Dims: M microbatches, B sequences of one microbatch, S sequence, V vocabulary

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.sharding import PartitionSpec as P

from scaling.meshes.rules import REPLICAS
from scaling.models.config import ModelConfig
from scaling.models.execution import DTYPES, Execution
from scaling.models.moe.routing import Routing
from scaling.models.partial_sums import mark_reduced, psum_replicas, zeros_like
from scaling.models.pipeline.loss import pipeline_gradients, pipeline_loss
from scaling.models.transformer import Transformer
from scaling.models.zero import all_gather_params, reduce_scatter_grads
from scaling.run import Batch, Run, Train
from scaling.run.optimizers import Optimizer, optimizer_of
from scaling.training.monitor.expert_load import mean_of_losses, routing_metrics, with_updated_bias
from scaling.training.monitor.layer_norms import layer_gradient_norms
from scaling.training.optim.learning_rate import schedule
from scaling.training.optim.optimizer import ADAMW, make_optimizer
from scaling.training.optim.trained import as_stored, joined, trained_mask, trained_part


class TrainState(NamedTuple):
    """Everything that a step changes."""

    step: jax.Array  # int32 scalar: finished steps
    params: Transformer  # float32 (frozen matrices maybe bf16), sharded by the rules
    optimizer: optax.OptState  # sharded like the parameters; of the trained ones
    ema: Transformer | None = None  # running mean of the trained parameters


class StepOutput(NamedTuple):
    """The measurements of a step: float32."""

    loss: jax.Array  # mean cross-entropy per token in nats
    routing: Routing | None  # of the layers with experts; load and drops are sums


class Tokens(NamedTuple):
    """One step's input, int32 [M, B, S]; B is sharded over data x fsdp x expert, S over context.

    Inside a microbatch [B, S].

    The tokens of a sequence are in the order of `scaling.models.attention_kernels.zigzag`.
    """

    inputs: jax.Array
    targets: jax.Array
    segments: jax.Array | None = None  # documents that are packed (`scaling.models.documents`)
    weights: jax.Array | None = None  # float32, of each target in the loss; None: all alike


# (trained part, tokens of one microbatch) -> (what is minimised, output), gradients
Differentiated = Callable[..., tuple[tuple[jax.Array, StepOutput], Transformer]]


def init_state(
    model: ModelConfig, execution: Execution, train: Train, optimizer: Optimizer = ADAMW
) -> TrainState:
    """A fresh state; the same numbers on every mesh. Call it inside jit, under the mesh."""
    return state_of(Transformer(model, execution, jax.random.key(train.seed)), train, optimizer)


def state_of(params: Transformer, train: Train, optimizer: Optimizer = ADAMW) -> TrainState:
    """The state before the first step, from these parameters; frozen ones in their format."""
    mask = trained_mask(params, train)
    params = as_stored(params, mask, DTYPES[params.execution.frozen])
    trained = trained_part(params, mask)
    state = make_optimizer(train, optimizer).init(trained)
    mean = None if train.ema is None else jax.tree.map(jnp.copy, trained)
    return TrainState(jnp.zeros((), jnp.int32), params, state, mean)


def abstract_state(
    model: ModelConfig, execution: Execution, train: Train, optimizer: Optimizer = ADAMW
) -> TrainState:
    """Shapes, formats and shardings of the state, without making it; under any mesh."""
    mesh = _current_mesh()
    shapes = jax.eval_shape(lambda: init_state(model, execution, train, optimizer))
    return jax.tree.map(lambda leaf: _with_sharding(leaf, mesh), shapes)


def abstract_arguments(run: Run, execution: Execution) -> tuple[TrainState, Tokens]:
    """Shapes, formats and shardings of the arguments of a run's step; under any mesh."""
    state = abstract_state(run.model, execution, run.train, optimizer_of(run))
    return state, abstract_tokens(run.batch, execution, run.train.documents == "packed")


def abstract_tokens(batch: Batch, execution: Execution, packed: bool = False) -> Tokens:
    """Shapes and shardings of one step's input, of packed documents or not."""
    shape = (batch.microbatches, batch.global_batch // batch.microbatches, batch.seq_len)
    spec = execution.spec(None, "batch", "sequence")
    sharding = jax.NamedSharding(_current_mesh(), spec)
    leaf: Any = jax.ShapeDtypeStruct(shape, jnp.int32, sharding=sharding)
    if not packed:
        return Tokens(leaf, leaf)
    return Tokens(leaf, leaf, leaf, leaf.update(dtype=jnp.float32))


def objective(
    params: Transformer, tokens: Tokens, z_loss: float = 0.0
) -> tuple[jax.Array, StepOutput]:
    """The minimised sum of one microbatch's loss, z-loss and balancing losses, all weighted.

    Weights of tokens are those of `_normalized`.
    """
    x_BSD, routing = params.hidden_states(tokens.inputs, tokens.segments)
    total, loss = params.loss(x_BSD, tokens.targets, tokens.weights, z_loss)
    return _with_balancing_losses(params, total, routing), StepOutput(loss, routing)


def _normalized(tokens: Tokens) -> Tokens:
    """The tokens with weights whose mean over all microbatches is 1.

    So the mean of the weighted terms is their weighted mean over the step, however the microbatches
    share the tokens that count. Without any such token all weights, and the loss, are 0.
    """
    if tokens.weights is None:
        return tokens
    with jax.named_scope("loss"):
        total = tokens.weights.sum()
        weights = tokens.weights * (tokens.weights.size / jnp.where(total > 0, total, 1))
    return tokens._replace(weights=weights)


def _with_balancing_losses(
    params: Transformer, total: jax.Array, routing: Routing | None
) -> jax.Array:
    """The total plus the weighted balancing losses of a microbatch, or of means over several."""
    moe = params.config.moe
    if routing is not None and moe is not None:
        with jax.named_scope("loss"):
            total = total + moe.aux_loss * routing.aux_loss.mean()
            total = total + moe.z_loss * routing.z_loss.mean()
    return total


def output_and_gradients(
    params: Transformer, tokens: Tokens, z_loss: float = 0.0, trained: Any | None = None
) -> tuple[StepOutput, Transformer]:
    """Means over all microbatches (load and drops: sums), and gradients sharded like `params`.

    `z_loss` is the weight of the logits' z-loss, which is not in the output. `trained` is the
    mask of what has gradients (`scaling.training.optim.trained`).
    """
    tokens = _normalized(tokens)
    if params.execution.rules.axes("layers"):
        assert trained is None  # refused by check_trainable
        return _pipelined(params, tokens, z_loss)
    once = _plain if tokens.inputs.shape[0] == 1 else _accumulated
    return once(params, tokens, z_loss, trained)


def _plain(
    params: Transformer, tokens: Tokens, z_loss: float, trained: Any | None
) -> tuple[StepOutput, Transformer]:
    """One microbatch: gradients arrive summed over all replicas."""
    gathered = _gathered_once(params)
    one = jax.tree.map(lambda x_MBS: x_MBS[0], tokens)
    differentiate, part = _differentiated(gathered or params, z_loss, trained)
    (_, output), grads = differentiate(part, one)
    return output, grads if gathered is None else _scattered_once(grads, params, trained)


def _accumulated(
    params: Transformer, tokens: Tokens, z_loss: float, trained: Any | None
) -> tuple[StepOutput, Transformer]:
    """Several microbatches: partial sums per device in float32, reduced after the last one."""
    microbatches = tokens.inputs.shape[0]
    gathered = _gathered_once(params)
    weights = mark_reduced(params, REPLICAS) if gathered is None else gathered
    output, grads = _sums(*_differentiated(weights, z_loss, trained), tokens)
    if gathered is not None:
        grads = _scattered_once(grads, params, trained)
    with jax.named_scope("gradients"):
        mean = jax.tree.map(lambda g: psum_replicas(g) / microbatches, grads)
    routing = mean_of_losses(output.routing, microbatches)
    return StepOutput(output.loss / microbatches, routing), mean


def _differentiated(
    weights: Transformer, z_loss: float, trained: Any | None
) -> tuple[Differentiated, Transformer]:
    """The objective, its outputs and gradients as a function of the trained part, and that part."""

    def of_part(part: Transformer, tokens: Tokens) -> tuple[jax.Array, StepOutput]:
        return objective(part if trained is None else joined(part, weights), tokens, z_loss)

    return jax.value_and_grad(of_part, has_aux=True), trained_part(weights, trained)


def _sums(
    differentiate: Differentiated, weights: Transformer, tokens: Tokens
) -> tuple[StepOutput, Transformer]:
    """Sums of outputs and float32 gradients over the microbatches."""

    def accumulate(total: tuple, tokens: Tokens) -> tuple[tuple, None]:
        (_, output), grads = differentiate(weights, tokens)
        with jax.named_scope("gradients"):
            return jax.tree.map(jnp.add, total, (output, grads)), None

    one = jax.tree.map(lambda x_MBS: x_MBS[0], tokens)
    (_, output), like = jax.eval_shape(differentiate, weights, one)
    like = jax.tree.map(lambda leaf: leaf.update(dtype=jnp.float32), like)
    zeros = jax.tree.map(zeros_like, (output, like))
    return jax.lax.scan(accumulate, zeros, tokens)[0]


def _pipelined(
    params: Transformer, tokens: Tokens, z_loss: float
) -> tuple[StepOutput, Transformer]:
    """All microbatches in one function, the layers sharded over `stage`."""
    gathered = all_gather_params(params, params.execution)
    given = tokens.inputs, tokens.targets, gathered, tokens.weights, z_loss
    if params.execution.schedule == "1f1b":
        balance = functools.partial(_with_balancing_losses, params, jnp.float32(0))
        loss, routing, grads = pipeline_gradients(params, *given, balance)
        return StepOutput(loss, mean_of_losses(routing, len(tokens.inputs))), grads

    def objective(params: Transformer) -> tuple[jax.Array, StepOutput]:
        (total, loss), routing = pipeline_loss(params, *given)
        routing = mean_of_losses(routing, tokens.inputs.shape[0])
        return _with_balancing_losses(params, total, routing), StepOutput(loss, routing)

    (_, output), grads = jax.value_and_grad(objective, has_aux=True)(params)
    return output, grads


def _gathered_once(params: Transformer) -> Transformer | None:
    """ZeRO stage 1: weights gathered for the step, whose gradients are partial sums per device.

    None under stage 3.
    """
    execution = params.execution
    gathered = all_gather_params(params, execution)
    return mark_reduced(gathered, (*REPLICAS, *execution.rules.axes("embed")))


def _scattered_once(grads: Transformer, params: Transformer, trained: Any | None) -> Transformer:
    with jax.named_scope("gradients"):
        return reduce_scatter_grads(grads, trained_part(params, trained), params.execution)


def train_step(
    state: TrainState, tokens: Tokens, train: Train, optimizer: Optimizer = ADAMW
) -> tuple[TrainState, dict]:
    """One optimiser step.

    Returns:
        The next state, and float32 scalars: `loss` before the step, `grad_norm` before clipping,
        `learning_rate` used; with experts also what `routing_metrics` says. On request
        `layer_grad_norms` [L].
    """
    trained = trained_mask(state.params, train)
    output, grads = output_and_gradients(state.params, tokens, train.z_loss, trained)
    with jax.named_scope("optimizer"):
        part = trained_part(state.params, trained)
        updates, opt_state = make_optimizer(train, optimizer).update(grads, state.optimizer, part)
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
    tokens = _normalized(tokens)
    if params.execution.rules.axes("layers"):
        losses, _ = pipeline_loss(params, tokens.inputs, tokens.targets, gathered, tokens.weights)
        return losses[1]
    model = params if gathered is None else gathered
    return jax.lax.map(lambda one: objective(model, one)[1].loss, tokens).mean()


def jitted_step(
    train: Train, optimizer: Optimizer = ADAMW, compiler_options: Mapping[str, Any] | None = None
) -> jax.stages.Wrapped:
    """`train_step` with its options bound and the state donated: `step(state, tokens)`."""

    def step(state: TrainState, tokens: Tokens) -> tuple[TrainState, dict]:
        return train_step(state, tokens, train, optimizer)

    options = dict(compiler_options) if compiler_options else None
    return jax.jit(step, donate_argnums=0, compiler_options=options)


def _current_mesh() -> Any:
    """The mesh that is set; an abstract one if there are no devices."""
    mesh = jax.sharding.get_mesh()
    return jax.sharding.get_abstract_mesh() if mesh.empty else mesh


def _with_sharding(leaf: jax.ShapeDtypeStruct, mesh: Any) -> jax.ShapeDtypeStruct:
    """`leaf` with its sharding on a mesh; scalars, without one under `eval_shape`, replicated."""
    spec = leaf.sharding.spec if leaf.sharding is not None else P()
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=jax.NamedSharding(mesh, spec))
