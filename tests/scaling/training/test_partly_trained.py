"""Adapters and frozen parameters: the same numbers on every mesh, no work for what is frozen."""

from dataclasses import replace
from functools import cache

import jax
import numpy as np
import pytest

from scaling.analytic.program import closed_form
from scaling.meshes.devices import host_mesh
from scaling.meshes.errors import InputError
from scaling.models.accounting import model_flops
from scaling.models.accounting.partly_trained import partly_trained_flops
from scaling.models.lora import Lora, adaptable, adapter_parameters, of_experts
from scaling.profiles.io import ideal
from scaling.simulate.step import price
from scaling.simulate.summary import matrix_flops, summarize
from scaling.training.step import init_state
from scaling.training.weights.naming import to_dict
from tests.harness import (
    H100,
    Case,
    abstract_arguments,
    assert_equals_one_device,
    compiled,
    execution_of,
    in_layer_order,
    moved,
    on_h100,
    placed,
    priced,
    stepped_alone,
    wide,
)

FAST = Case("data=2,fsdp=2,tensor=2", remat="selective", microbatches=2, tuning="adapters")
SLOW = [
    Case("data=2,fsdp=2", zero=1, microbatches=2, tuning="frozen"),
    Case("expert=2,tensor=2", "mixtral", tuning="adapters of attention"),
    Case("fsdp=2,tensor=2", "odd", "full", tuning="adapters"),
    Case("fsdp=2,stage=2", microbatches=2, tuning="running mean"),
    Case("fsdp=2,context=2,tensor=2", microbatches=2, sequence_parallel=False, tuning="adapters"),
    Case("data=2,fsdp=4", zero=1, microbatches=2, tuning="adapters"),
    Case("fsdp=2,expert=2,tensor=2", "deepseek-v3", "selective", 2, tuning="adapters of latents"),
    # In one microbatch the rounding of the first update sends one row to another expert.
    Case("fsdp=2,expert=2,tensor=2", "mixtral", microbatches=2, tuning="adapters of experts"),
    Case("data=2,fsdp=2,expert=2", "padded", "full", 2, tuning="adapters of experts"),
    Case("data=2,stage=2", "mixtral", "selective", 2, tuning="adapters of experts"),
    Case("fsdp=2,stage=2", "padded", microbatches=4, zero=1, tuning="adapters of experts"),
    Case("fsdp=2,expert=2,stage=2", "mixtral", microbatches=2, tuning="adapters of experts"),
    Case("fsdp=2,stage=2", microbatches=4, tuning="adapters"),
    Case("data=2,stage=2,tensor=2", microbatches=4, tuning="adapters of attention"),
    Case("fsdp=2,stage=2", microbatches=4, tuning="frozen"),
    Case("data=2,fsdp=2,expert=2", "mixtral", microbatches=2, tuning="adapters of attention"),
    Case("fsdp=2,tensor=2", "qwen", optimizer="muon", tuning="frozen"),
    Case("data=2,tensor=2", "gpt", optimizer="adafactor", tuning="frozen"),
]


@pytest.mark.parametrize(
    "case", [FAST, *(pytest.param(c, marks=pytest.mark.slow) for c in SLOW)], ids=str
)
def test_the_step_computes_what_one_device_computes(case):
    assert_equals_one_device(case)


@cache
def started(tuning):
    """Arrays of a fresh state by name."""
    run = Case(tuning=tuning).run
    with jax.set_mesh(host_mesh(run.mesh)):
        state = jax.jit(lambda: init_state(run, execution_of(run)))()
    return {name: np.asarray(x) for name, x in to_dict(state).items()}


def test_adapters_begin_as_the_model_itself_and_alone_have_optimizer_state():
    plain, adapted = started("all parameters"), started("adapters")
    for name in (name for name in plain if name.startswith("params/")):
        np.testing.assert_array_equal(plain[name], adapted[name])
    factors = {n: x for n, x in adapted.items() if n.startswith("params/") and "adapters" in n}
    assert all((x == 0).all() == name.endswith("/b") for name, x in factors.items())
    run = Case(tuning="adapters").run
    assert sum(x.size for x in factors.values()) == adapter_parameters(run.train.lora, run.model)
    moments = [name for name in adapted if "/mu/" in name]
    assert len(moments) == len(factors) and all("adapters" in name for name in moments)


def test_frozen_parameters_stay_have_no_gradient_and_no_running_mean():
    case, frozen = Case(tuning="frozen"), ("embedding/", "layers/mlp/")
    with jax.set_mesh(host_mesh(case.run.mesh)):
        before = in_layer_order(case.run, placed(case.run)[0].params)
    after = stepped_alone(case)
    for name, array in before.items():
        assert (array == after["params"][name]).all() == name.startswith(frozen), name
    assert after["gradients"].keys() == {n for n in before if not n.startswith(frozen)}
    means = {name.removesuffix(" (mean)") for name in after["params"]} - before.keys()
    assert not means and f"{min(after['gradients'])} (mean)" in after["params"]


def test_the_running_mean_follows_the_parameters():
    case, decay = Case(tuning="frozen"), 0.9
    with jax.set_mesh(host_mesh(case.run.mesh)):
        state, tokens = placed(case.run)
        state = state._replace(ema=jax.tree.map(lambda x: x + 1.0, state.ema))
        before = in_layer_order(case.run, state.ema)
        state, _ = compiled(case)(state, tokens)
    params = in_layer_order(case.run, state.params)
    for name, mean in in_layer_order(case.run, state.ema).items():
        expected = decay * before[name] + (1 - decay) * params[name]
        np.testing.assert_allclose(mean, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("model", "tuning"),
    [
        ("llama", "adapters"),
        pytest.param("llama", "frozen", marks=pytest.mark.slow),
        pytest.param("gpt", "final norm alone", marks=pytest.mark.slow),
    ],
)
def test_no_gradient_of_a_frozen_matrix_is_computed(model, tuning):
    """Products of the compiled step, against those counted by hand; attention is not flash here."""
    case = Case(model=model, tuning=tuning)
    run, found = case.run, matrix_flops(priced(case))
    train = run.train
    patterns = {"freeze": train.freeze, "trainable": train.trainable}
    sizes = run.model, run.batch.global_batch, run.batch.seq_len
    assert found == pytest.approx(
        partly_trained_flops(*sizes, lora=train.lora, **patterns), rel=0.02
    )
    assert found < 0.9 * model_flops(*sizes)
    assert summarize(priced(case), run).model_flops == partly_trained_flops(
        *sizes, lora=train.lora, **patterns
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"freeze": ("embeding/*",)},
            "train.freeze: no parameter is called 'embeding/.*embedding/",
        ),
        ({"trainable": ("head",)}, "train.trainable: no parameter is called 'head'.*head_VD"),
        ({"freeze": ("*",)}, "freezes all 12 arrays of parameters"),
    ],
)
def test_patterns_are_checked_before_anything_is_compiled(settings, message):
    run = Case().run
    run = replace(run, train=replace(run.train, **settings))
    with jax.set_mesh(host_mesh(run.mesh)), pytest.raises(InputError, match=message):
        abstract_arguments(run)


@pytest.mark.deviceless
def test_on_h100_the_state_is_that_of_the_adapters_and_no_frozen_gradient_moves():
    """Bytes of a device; gradients of frozen matrices would be reduce-scattered over fsdp."""
    case = Case("fsdp=8", tuning="adapters", remat="selective")
    run = wide(case)
    result, full = (on_h100(r) for r in (run, replace(run, train=replace(run.train, lora=None))))
    memory, whole = (summarize(priced, run).memory for priced in (result, full))
    state = 2 * 4 * adapter_parameters(run.train.lora, run.model)  # two moments, float32
    assert state / 8 <= memory.optimizer_state < 0.8 * state  # those of b are not cut over fsdp
    closed = summarize(price(closed_form(run, run.mesh, H100), H100, ideal()), run).memory
    assert closed.optimizer_state == pytest.approx(memory.optimizer_state, rel=0.01)
    assert closed.parameters == pytest.approx(memory.parameters, rel=0.01)
    assert memory.gradients < 0.1 * whole.gradients
    scattered = lambda priced: sum(
        n for (_, kind), n in moved(priced).items() if kind == "reduce-scatter"
    )
    assert scattered(result) < 0.1 * scattered(full)


@pytest.mark.parametrize("model", ["llama", "latent", "mixtral"])
def test_the_closed_form_counts_the_products_and_the_state_of_adapters(model):
    case = Case(model=model, tuning="adapters of latents" if model == "latent" else "adapters")
    lora = case.run.train.lora
    names = adaptable(case.run.model)
    names = (n for n in names if not of_experts(Lora(targets=(n,)), case.run.model))
    lora = replace(lora, targets=tuple(names))
    run = replace(case.run, train=replace(case.run.train, lora=lora, trainable=()))
    priced = price(closed_form(run, run.mesh, H100), H100, ideal())
    sizes = run.model, run.batch.global_batch, run.batch.seq_len
    assert matrix_flops(priced) == pytest.approx(partly_trained_flops(*sizes, lora=lora), rel=0.01)
    memory = summarize(priced, run).memory
    assert memory.optimizer_state == 2 * 4 * adapter_parameters(lora, run.model)


def test_the_closed_form_sums_no_gradients_of_frozen_parameters():
    run = replace(wide(Case("data=2,fsdp=2,tensor=2", tuning="adapters")), remat="none")
    full = replace(run, train=replace(run.train, lora=None))
    totals = []
    for each in (run, full):
        found = moved(price(closed_form(each, each.mesh, H100), H100, ideal()))
        gathered = {key: size for key, size in found.items() if key[1] == "all-gather"}
        totals.append((gathered, found.get(("fsdp", "reduce-scatter"), 0.0)))
    (ahead, scattered), (expected, others) = totals
    assert ahead == expected and scattered == 0 < others


@pytest.mark.parametrize("setting", [{"freeze": ("embedding/*",)}, {"trainable": ("head_VD",)}])
def test_the_closed_form_has_no_other_frozen_parameters_and_says_what_has(setting):
    (key,), run = setting, Case().run
    run = replace(run, train=replace(run.train, **setting))
    with pytest.raises(InputError, match=f"train.{key}: the closed form .* --source compiled"):
        closed_form(run, run.mesh, H100)
