"""Optimisers by name: whose setting is whose, defaults, and what is refused with which words."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.meshes.errors import InputError
from scaling.meshes.shape import MeshShape
from scaling.run import Precision, Run, Train, read_run, run_dict
from scaling.run.optimizers import (
    DEFAULTS,
    SETTINGS,
    Optimizer,
    check_optimizer,
    decay_steps,
    optimizer_of,
    settings_of,
)
from scaling.run.parallelism.checks import check_trainable
from scaling.run.recipes import recipe

TINY = recipe("tiny")
NAMES = tuple(DEFAULTS)


def with_train(optimizer: str = "adamw", **changes) -> Run:
    return replace(TINY, optimizer=optimizer, train=replace(TINY.train, **changes))


def refused(run: Run) -> str:
    with pytest.raises(InputError) as raised:
        check_optimizer(run)
    return str(raised.value)


@pytest.mark.parametrize("name", NAMES)
def test_every_optimizer_is_trained_with_its_defaults(name: str) -> None:
    check_trainable(replace(TINY, optimizer=name), MeshShape(fsdp=2, tensor=2))
    assert settings_of(TINY.train, name) == DEFAULTS[name]
    assert optimizer_of(replace(TINY, optimizer=name)) == Optimizer(name)


@pytest.mark.parametrize(
    ("name", "known"), [("adam", "'adamw'"), ("lino", "'lion'"), ("sgdxyz", "known: adamw, lion")]
)
def test_an_unknown_optimizer_is_named_with_the_nearest_one(name: str, known: str) -> None:
    said = refused(replace(TINY, optimizer=name))
    assert f"unknown optimizer {name!r}" in said and known in said


@pytest.mark.parametrize(
    ("name", "key"),
    [(name, key) for name in NAMES for key in SETTINGS if key not in DEFAULTS[name]],
)
def test_the_setting_of_another_optimizer_is_refused(name: str, key: str) -> None:
    said = refused(with_train(name, **{key: 0.5}))
    assert said.startswith(f"train.{key}=0.5 is no setting of {name}, which has: ")
    assert said.endswith(", ".join(DEFAULTS[name]))


@given(
    st.sampled_from([(name, key) for name in NAMES for key in DEFAULTS[name]]),
    st.floats(0.01, 0.99),
)
def test_a_setting_that_is_given_replaces_the_default_alone(which: tuple, value: float) -> None:
    name, key = which
    run = with_train(name, **{key: value})
    check_optimizer(run)
    assert settings_of(run.train, name) == {**DEFAULTS[name], key: value}
    assert read_run(run_dict(run)) == run


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        *(("adamw", key, value) for key in ("beta_1", "beta_2") for value in (-0.1, 1.0, 1.5)),
        ("muon", "momentum", 1.0),
        ("adamw", "epsilon", 0.0),
        ("adafactor", "decay_rate", -0.8),
        ("adafactor", "epsilon", float("nan")),
    ],
)
def test_settings_out_of_range_are_refused_by_name_and_number(
    name: str, key: str, value: float
) -> None:
    assert refused(with_train(name, **{key: value})).startswith(f"train.{key}={value} must be ")


# --- schedules and formats ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"schedule": "constant", "final_rate": 0.1}, "final_rate=0.1 means nothing"),
        ({"schedule": "linear", "final_rate": 1.5}, "final_rate=1.5 must be from 0 to 1"),
        ({"schedule": "cosine", "decay_steps": 5}, "decay_steps=5 means nothing"),
        ({"schedule": "wsd", "decay_steps": 0}, "decay_steps=0 must be at least 1"),
        ({"schedule": "wsd", "decay_steps": 16}, "use decay_steps up to 15"),  # 20 - 5 to warm up
    ],
)
def test_schedules_that_mean_nothing_are_refused(changes: dict, words: str) -> None:
    assert words in refused(with_train(**changes))


@given(st.integers(1, 1000), st.integers(0, 1000))
def test_a_tenth_of_the_steps_decays_unless_the_warm_up_needs_them(steps: int, warmup: int) -> None:
    train = Train(steps=steps, warmup_steps=warmup, schedule="wsd")
    check_optimizer(replace(TINY, train=train))
    found = decay_steps(train)
    assert 0 <= found <= max(1, steps / 10 + 0.5)
    assert found + min(warmup, steps) <= steps
    assert found > 0 or warmup >= steps


def test_stochastic_rounding_of_a_float32_state_is_refused() -> None:
    precision = Precision("fp32", stochastic_rounding=True)
    assert "set that to 'bf16'" in refused(replace(TINY, precision=precision))
    both = replace(precision, optimizer_state="bf16")
    check_trainable(replace(TINY, precision=both), MeshShape())
    assert optimizer_of(replace(TINY, precision=both)) == Optimizer("adamw", "bf16", True)


def test_muon_multiplies_in_the_format_of_the_model() -> None:
    run = replace(TINY, optimizer="muon", precision=Precision("bf16"))
    assert optimizer_of(run).products == "bf16"
    assert optimizer_of(replace(run, optimizer="lion")).products == "fp32"
