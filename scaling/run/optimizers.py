"""The optimisers that are trained with: their names, settings and defaults, and what is refused.

    adamw       two moments of each parameter
    lion        one
    adafactor   of each matrix the mean square of its rows and of its columns
    muon        one moment of each matrix of a layer; adamw's two for tables and vectors
    my.py:make  of make(learning_rate), any optax chain; the closed form takes it for adamw

Imports no jax: what is predicted and planned has the same optimisers.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from scaling.meshes.errors import InputError, check_fields, nearest
from scaling.run import Run, Train
from scaling.run.user_code import named_function

# Settings of each optimiser under `train` with their defaults; others are refused.
DEFAULTS: Mapping[str, Mapping[str, float]] = {
    # GPT-3 (arXiv 2005.14165, appendix B), Llama (2302.13971)
    "adamw": {"beta_1": 0.9, "beta_2": 0.95, "epsilon": 1e-8},
    # arXiv 2302.06675, section 4.5
    "lion": {"beta_1": 0.9, "beta_2": 0.99},
    # arXiv 1804.04235, algorithm 4 and section 9
    "adafactor": {"decay_rate": 0.8, "epsilon": 1e-30},
    # Muon's momentum: K. Jordan, kellerjordan.github.io/posts/muon; the rest is of its AdamW
    "muon": {"momentum": 0.95, "beta_1": 0.9, "beta_2": 0.95, "epsilon": 1e-8},
}
SETTINGS = tuple(dict.fromkeys(key for keys in DEFAULTS.values() for key in keys))
MUON_ITERATIONS = 5  # of its Newton-Schulz iteration: K. Jordan
FINAL_RATE = 0.1  # of the peak: GPT-3 and Llama likewise
DECAY_SHARE = 0.1  # of all steps, of "wsd": MiniCPM (arXiv 2404.06395, section 4.3)


@dataclass(frozen=True)
class Optimizer:
    """An optimiser, and the formats it works in."""

    name: str = "adamw"
    state: Literal["fp32", "bf16"] = "fp32"
    stochastic_rounding: bool = False  # of a state in bf16
    products: str = "fp32"  # format of Muon's matrix products, as precision.between


def is_own_chain(name: str) -> bool:
    """Whether an optimizer is the user's, `file.py:function`."""
    return ".py:" in name


def optimizer_of(run: Run) -> Optimizer:
    """The optimiser of a run."""
    precision = run.precision
    products = precision.between if run.optimizer == "muon" else Optimizer.products
    return Optimizer(
        run.optimizer, precision.optimizer_state, precision.stochastic_rounding, products
    )


def settings_of(train: Train, name: str) -> dict[str, float]:
    """The settings of the optimiser `name`: those of `train`, else its defaults."""
    own = DEFAULTS.get(name, {})
    settings = {key: getattr(train, key) for key in own}
    return {**own, **{k: v for k, v in settings.items() if v is not None}}


def final_rate(train: Train) -> float:
    """Share of the peak rate that the schedule ends at."""
    return FINAL_RATE if train.final_rate is None else train.final_rate


def decay_steps(train: Train) -> int:
    """Steps at the end during which "wsd" lets the rate fall; at least one, none of the warm-up."""
    steps = max(1, round(DECAY_SHARE * train.steps))
    stable = train.steps - min(train.warmup_steps, train.steps)
    return min(steps, stable) if train.decay_steps is None else train.decay_steps


def check_optimizer(run: Run) -> None:
    """Raise InputError for an optimiser or schedule that is not there, or not with these settings.

    A setting of another optimiser is an error, not ignored: it would be a silent default.
    """
    name, train, precision = run.optimizer, run.train, run.precision
    if is_own_chain(name):
        named_function(name)
        if train.groups:
            raise InputError(f"train.groups with optimizer {name}: use optax.partition there")
    elif name not in DEFAULTS:
        raise InputError(
            "not a FILE.py:FUNCTION, which gets the learning rate and returns an optax chain, and "
            f"an unknown optimizer {name!r}; {nearest(name, DEFAULTS)}"
        )
    for key in SETTINGS:
        value = getattr(train, key)
        if value is None:
            continue
        if key not in DEFAULTS.get(name, {}):
            settings = ", ".join(DEFAULTS.get(name, {})) or "none here"
            raise InputError(f"train.{key}={value} is no setting of {name}, which has: {settings}")
        fraction = key in ("beta_1", "beta_2", "momentum")  # not epsilon or the decay's exponent
        if fraction and not 0 <= value < 1:
            raise InputError(f"train.{key}={value} must be at least 0 and below 1")
        if not fraction and not value > 0:
            raise InputError(f"train.{key}={value} must be positive")
    if precision.stochastic_rounding and precision.optimizer_state != "bf16":
        raise InputError(
            "precision.stochastic_rounding rounds the optimizer's state to bf16, and "
            f"precision.optimizer_state is {precision.optimizer_state!r}; "
            "set that to 'bf16', or switch stochastic_rounding off"
        )
    _check_schedule(train)


def _check_schedule(train: Train) -> None:
    of_schedules = {"final_rate": ("cosine", "linear", "wsd"), "decay_steps": ("wsd",)}
    for key, schedules in of_schedules.items():
        value = getattr(train, key)
        if value is not None and train.schedule not in schedules:
            raise InputError(
                f"train.{key}={value} means nothing to the schedule {train.schedule!r}; "
                f"leave it out, or use {' or '.join(schedules)}"
            )
    check_fields(train, ("final_rate",), 0, 1, "train.")
    check_fields(train, ("decay_steps",), 1, where="train.")
    if train.decay_steps and train.warmup_steps + train.decay_steps > train.steps:
        raise InputError(
            f"train.warmup_steps={train.warmup_steps} and train.decay_steps={train.decay_steps} "
            f"are more than train.steps={train.steps}; use decay_steps up to "
            f"{max(train.steps - train.warmup_steps, 1)}, or more steps"
        )
