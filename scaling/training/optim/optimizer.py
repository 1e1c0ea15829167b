"""One optimiser step: clip the global norm of the gradients, then AdamW, Lion, Adafactor or Muon.

    adamw      arXiv 1711.05101       lion   arXiv 2302.06675
    adafactor  arXiv 1804.04235       muon   kellerjordan.github.io/posts/muon, arXiv 2502.16982

Weight decay is decoupled in all four: a step takes rate x weight_decay of each matrix, and nothing
of norms and biases. The state of a parameter is sharded like the parameter.

The learning rate rises linearly to `learning_rate` over `warmup_steps`, then

    cosine    falls along a cosine to `final_rate` of it at `steps`
    linear    falls along a line to the same
    wsd       stays, and falls along a line during the last `decay_steps` (arXiv 2405.18392)
    constant  stays
"""

import jax
import optax
from flax import nnx

from scaling.models.initializers import is_matrix
from scaling.run import Train
from scaling.run.optimizers import Optimizer, decay_steps, final_rate, settings_of
from scaling.training.optim.adafactor import scale_by_adafactor
from scaling.training.optim.bf16_state import store_state_in_bf16
from scaling.training.optim.muon import by_kind, scale_by_muon

ADAMW = Optimizer()


def make_optimizer(train: Train, optimizer: Optimizer = ADAMW) -> optax.GradientTransformation:
    """Clip (unless `clip_norm` is 0), then the optimiser; norms and biases are not decayed."""
    clip = [optax.clip_by_global_norm(train.clip_norm)] if train.clip_norm else []
    steps = optax.chain(*clip, _core(train, optimizer))
    if optimizer.state == "fp32":
        return steps
    return store_state_in_bf16(steps, train.seed if optimizer.stochastic_rounding else None)


def schedule(train: Train) -> optax.Schedule:
    """Learning rate as a function of the number of finished steps."""
    peak, warmup = train.learning_rate, min(train.warmup_steps, train.steps)
    first = peak / (warmup + 1) if warmup else peak
    last, end = peak * final_rate(train), max(train.steps, warmup + 1)
    if train.schedule == "cosine":
        return optax.warmup_cosine_decay_schedule(
            init_value=first,
            peak_value=peak,
            warmup_steps=warmup,
            decay_steps=end,
            end_value=last,
        )
    falls = {"linear": end - warmup, "wsd": decay_steps(train), "constant": 0}[train.schedule]
    rise = optax.linear_schedule(first, peak, warmup)
    stay = optax.constant_schedule(peak)
    fall = optax.linear_schedule(peak, last, falls) if falls else stay
    return optax.join_schedules([rise, stay, fall], [warmup, end - falls])


def decay_mask(params: nnx.Module) -> nnx.Module:
    """A tree of booleans in place of parameters: whether weight decay applies."""
    return jax.tree.map(is_matrix, params, is_leaf=lambda leaf: isinstance(leaf, nnx.Variable))


def _core(train: Train, optimizer: Optimizer) -> optax.GradientTransformation:
    """The optimiser itself."""
    s = settings_of(train, optimizer.name)
    if optimizer.name == "adafactor":
        return _step(train, scale_by_adafactor(s["decay_rate"], s["epsilon"]))
    if optimizer.name == "lion":
        return _step(train, optax.scale_by_lion(s["beta_1"], s["beta_2"]))
    adamw = _step(train, optax.scale_by_adam(s["beta_1"], s["beta_2"], s["epsilon"]))
    if optimizer.name == "adamw":
        return adamw
    assert optimizer.name == "muon"  # check_optimizer has refused all others
    muon = _step(train, scale_by_muon(s["momentum"], s["epsilon"], optimizer.products))
    return optax.partition({"muon": muon, "adamw": adamw}, by_kind)


def _step(train: Train, scaled: optax.GradientTransformation) -> optax.GradientTransformation:
    """- rate x (the scaled gradient + weight_decay x parameter)."""
    return optax.chain(
        scaled,
        optax.add_decayed_weights(train.weight_decay, decay_mask),
        optax.scale_by_learning_rate(schedule(train)),
    )
