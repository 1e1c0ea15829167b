"""One optimiser step: clip the global norm of the gradients, then AdamW, Lion, Adafactor or Muon.

    adamw      arXiv 1711.05101       lion   arXiv 2302.06675
    adafactor  arXiv 1804.04235       muon   kellerjordan.github.io/posts/muon, arXiv 2502.16982

Weight decay is decoupled in all four: a step takes rate x weight_decay of each matrix, and nothing
of norms and biases, unless `train.groups` says otherwise of parameters whose names match a pattern
(the first that does counts). The state of a parameter is sharded like the parameter.

The learning rate rises linearly to `learning_rate` over `warmup_steps`, then

    cosine    falls along a cosine to `final_rate` of it at `steps`
    linear    falls along a line to the same
    wsd       stays, and falls along a line during the last `decay_steps` (arXiv 2405.18392)
    constant  stays

A state kept in bf16 takes half the memory; the optimiser computes with it in float32. Rounding to
nearest drops what is added to a mean whenever it is under 1/512 of it. Stochastic rounding goes up
or down with the odds of the distance, so that the mean over steps is right:

    bf16 is the upper half of a float32:  add 16 random bits below it, and truncate
"""

from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from scaling.meshes.errors import InputError
from scaling.models.initializers import is_matrix, is_variable
from scaling.run import Group, Train
from scaling.run.optimizers import (
    Optimizer,
    decay_steps,
    final_rate,
    is_own_chain,
    settings_of,
)
from scaling.run.user_code import described, run_user_code, user_function
from scaling.training.optim.adafactor import scale_by_adafactor
from scaling.training.optim.muon import by_kind, scale_by_muon
from scaling.training.optim.trained import matching
from scaling.training.weights.naming import leaf_names

ADAMW = Optimizer()
LOW_BITS = 16  # of a float32, which bf16 lacks


def make_optimizer(train: Train, optimizer: Optimizer = ADAMW) -> optax.GradientTransformation:
    """Clip (unless `clip_norm` is 0), then the optimiser; norms and biases are not decayed."""
    s = settings_of(train, optimizer.name)
    rate = schedule(train)

    def step(scaled: optax.GradientTransformation) -> optax.GradientTransformation:
        """- rate x (the scaled gradient + weight_decay x parameter)."""
        if train.groups:
            by_rate = optax.scale_by_learning_rate(rate)
            return optax.chain(scaled, _grouped_decay(train), by_rate, _grouped_rate(train))
        decay = optax.add_decayed_weights(train.weight_decay, decay_mask)
        return optax.chain(scaled, decay, optax.scale_by_learning_rate(rate))

    if is_own_chain(optimizer.name):
        return _in_its_format(_own_chain(optimizer.name, rate), train, optimizer)
    if optimizer.name == "adafactor":
        core = step(scale_by_adafactor(s["decay_rate"], s["epsilon"]))
    elif optimizer.name == "lion":
        core = step(optax.scale_by_lion(s["beta_1"], s["beta_2"]))
    else:  # check_optimizer has refused all others than AdamW and Muon
        core = step(optax.scale_by_adam(s["beta_1"], s["beta_2"], s["epsilon"]))
    if optimizer.name == "muon":
        muon = scale_by_muon(s["momentum"], s["epsilon"], optimizer.products)
        core = optax.partition({"muon": step(muon), "adamw": core}, by_kind)
    clip = [optax.clip_by_global_norm(train.clip_norm)] if train.clip_norm else []
    return _in_its_format(optax.chain(*clip, core), train, optimizer)


def _in_its_format(
    steps: optax.GradientTransformation, train: Train, optimizer: Optimizer
) -> optax.GradientTransformation:
    if optimizer.state == "fp32":
        return steps
    return store_state_in_bf16(steps, train.seed if optimizer.stochastic_rounding else None)


def _own_chain(text: str, rate: optax.Schedule) -> optax.GradientTransformation:
    """The chain that a function of the user makes of a learning rate.

    Raises:
        InputError: no such function, it fails, or it returns something else.
    """
    path, function = user_function(text)
    made = run_user_code(path, lambda: function(rate))
    if not (hasattr(made, "init") and hasattr(made, "update")):
        raise InputError(
            f"{text} returned {described(made)}: return an optax chain, such as optax.sgd(rate)"
        )
    chain: optax.GradientTransformation = made
    return chain


def check_groups(params: Any, train: Train) -> None:
    """Raise InputError for a pattern of `train.groups` that no parameter matches."""
    matching(leaf_names(params), tuple(train.groups), "groups")


def _group_of(name: str, train: Train) -> Group:
    found = (g for pattern, g in train.groups.items() if fnmatchcase(name, pattern))
    return next(found, Group())


def _grouped_decay(train: Train) -> optax.GradientTransformation:
    """Adds to each update its group's weight decay times the parameter."""

    def decayed(updates: Any, params: Any) -> Any:
        flags = jax.tree.leaves(decay_mask(params))
        own = [_group_of(name, train).weight_decay for name in leaf_names(params)]
        usual = [train.weight_decay if flag else 0.0 for flag in flags]
        share = [u if o is None else o for o, u in zip(own, usual, strict=True)]
        tree = jax.tree.unflatten(jax.tree.structure(params), share)
        return jax.tree.map(lambda g, p, s: g + s * p if s else g, updates, params, tree)

    return optax.stateless(decayed)


def _grouped_rate(train: Train) -> optax.GradientTransformation:
    """Multiplies each update by its group's share of the learning rate."""

    def scaled(updates: Any, params: Any) -> Any:
        rates = [_group_of(name, train).learning_rate for name in leaf_names(updates)]
        tree = jax.tree.unflatten(jax.tree.structure(updates), rates)
        return jax.tree.map(lambda g, rate: g if rate == 1 else rate * g, updates, tree)

    return optax.stateless(scaled)


def schedule(train: Train) -> optax.Schedule:
    """Learning rate as a function of the number of finished steps."""
    peak, warmup = train.learning_rate, min(train.warmup_steps, train.steps)
    first = peak / (warmup + 1) if warmup else peak
    last, end = peak * final_rate(train), max(train.steps, warmup + 1)
    if train.schedule == "cosine":
        return optax.warmup_cosine_decay_schedule(
            init_value=first, peak_value=peak, warmup_steps=warmup, decay_steps=end, end_value=last
        )
    falls = {"linear": end - warmup, "wsd": decay_steps(train), "constant": 0}[train.schedule]
    rise = optax.linear_schedule(first, peak, warmup)
    stay = optax.constant_schedule(peak)
    fall = optax.linear_schedule(peak, last, falls) if falls else stay
    return optax.join_schedules([rise, stay, fall], [warmup, end - falls])


def decay_mask(params: nnx.Module) -> nnx.Module:
    """A tree of booleans in place of parameters: whether weight decay applies."""
    return jax.tree.map(is_matrix, params, is_leaf=is_variable)


class StoredState(NamedTuple):
    """The state of the optimiser inside, its arrays in bf16."""

    steps: jax.Array  # int32 scalar: finished steps
    state: Any


def store_state_in_bf16(
    inner: optax.GradientTransformation, seed: int | None
) -> optax.GradientTransformation:
    """`inner` with a state in bf16; integers, such as counters, stay as they are.

    The seed of stochastic rounding is the same on every mesh; None rounds to nearest.
    """

    def init(params: Any) -> StoredState:
        return StoredState(jnp.zeros((), jnp.int32), _to_bf16(inner.init(params), None))

    def update(gradients: Any, stored: StoredState, params: Any = None) -> tuple[Any, StoredState]:
        widened = lambda leaf: leaf.astype(jnp.float32) if leaf.dtype == jnp.bfloat16 else leaf
        in_float32 = jax.tree.map(widened, stored.state)
        updates, state = inner.update(gradients, in_float32, params)
        key = None if seed is None else jax.random.fold_in(jax.random.key(seed), stored.steps)
        steps = optax.safe_increment(stored.steps)
        return updates, StoredState(steps, _to_bf16(state, key))

    return optax.GradientTransformation(init, update)


def stochastic_round(x: jax.Array, key: jax.Array) -> jax.Array:
    """A float32 array in bf16, each number rounded up or down at random, right in the mean."""
    meshless = jax.sharding.get_abstract_mesh().empty
    spec = None if meshless else jax.typeof(x).sharding.spec
    noise = jax.random.bits(key, x.shape, jnp.uint32, out_sharding=spec) >> LOW_BITS
    bits = jax.lax.bitcast_convert_type(x, jnp.uint32) + noise
    rounded = jax.lax.bitcast_convert_type(bits >> LOW_BITS << LOW_BITS, jnp.float32)
    return jnp.where(jnp.isfinite(x), rounded, x).astype(jnp.bfloat16)


def _to_bf16(state: Any, key: jax.Array | None) -> Any:
    leaves, structure = jax.tree.flatten(state)
    for i, leaf in enumerate(leaves):
        if leaf.dtype != jnp.float32:
            continue
        if key is None:
            leaves[i] = leaf.astype(jnp.bfloat16)
        else:
            leaves[i] = stochastic_round(leaf, jax.random.fold_in(key, i))
    return jax.tree.unflatten(structure, leaves)
