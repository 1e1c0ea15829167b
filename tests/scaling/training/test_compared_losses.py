"""DPO and distillation: gradients as the formulas say, and as one device computes them."""

from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from scaling.analytic.program import closed_form
from scaling.meshes.devices import host_mesh
from scaling.meshes.shape import MeshShape
from scaling.models.transformer import Transformer
from scaling.profiles.io import ideal
from scaling.run import Batch, Loss, Run, Train, save_run
from scaling.simulate.step import price
from scaling.simulate.summary import matrix_flops, summarize
from scaling.training.gradients import Tokens, output_and_gradients
from scaling.training.step import init_state
from tests.harness import (
    H100,
    MODELS,
    Case,
    assert_equals_one_device,
    execution_of,
    moved,
    on_h100,
    wide,
)

BETA, T, WEIGHT = 0.5, 2.0, 0.3
B, S = 4, 8


def setting(loss):
    run = Run(
        "toy",
        replace(MODELS["llama"], n_layers=1),
        Batch(B, S),
        MeshShape(),
        train=Train(loss=loss),
    )
    run = replace(run, precision=replace(run.precision, compute="fp32"))
    noise = np.random.default_rng(0)
    text = noise.integers(run.model.vocab_size, size=(B, S + 1)).astype(np.int32)
    weights = noise.integers(2, size=(B, S)).astype(np.float32)
    return run, Tokens(text[None, :, :-1], text[None, :, 1:], None, weights[None])


def log_softmax(model, tokens):
    return jax.nn.log_softmax(model(tokens.inputs[0]))


def dpo(model, reference, tokens):
    """Rafailov et al. 2023, equation 7, from whole logits."""

    def of(model):
        of_targets = jnp.take_along_axis(
            log_softmax(model, tokens), tokens.targets[0][..., None], -1
        )
        return (of_targets[..., 0] * tokens.weights[0]).sum(axis=1)

    ratio = of(model) - of(reference)
    return -jnp.log(jax.nn.sigmoid(BETA * (ratio[::2] - ratio[1::2]))).mean()


def distilled(model, teacher, tokens):
    """Hinton et al. 2015, from whole logits."""
    weights = tokens.weights[0] / tokens.weights.mean()
    entropy = -jnp.take_along_axis(log_softmax(model, tokens), tokens.targets[0][..., None], -1)
    q, p = (jax.nn.log_softmax(m(tokens.inputs[0]) / T) for m in (teacher, model))
    kl = (jnp.exp(q) * (q - p)).sum(axis=-1)
    both = WEIGHT * T**2 * kl + (1 - WEIGHT) * entropy[..., 0]
    return (both * weights).mean()


@pytest.mark.slow
@pytest.mark.parametrize("largest", [2**30, 2**11])  # bytes of logits: one chunk, eight
@pytest.mark.parametrize("kind", ["dpo", "distillation"])
def test_gradients_are_those_of_the_formula(kind, largest, monkeypatch, teacher):
    monkeypatch.setattr("scaling.models.accounting.logits.LARGEST_LOGITS", largest)
    formula = {"dpo": dpo, "distillation": distilled}[kind]
    loss = (
        Loss("dpo", beta=BETA)
        if kind == "dpo"
        else Loss(kind, teacher=teacher, temperature=T, weight=WEIGHT)
    )
    run, tokens = setting(loss)
    with jax.set_mesh(host_mesh(run.mesh)):
        state = init_state(run, execution_of(run))
        other = Transformer(run.model, state.reference.execution, jax.random.key(7))
        reference = jax.tree.map(lambda x: 5 * x, other)  # far from the model
        output, found = jax.jit(lambda p, r: output_and_gradients(p, tokens, run.train, None, r))(
            state.params, reference
        )
        value, expected = jax.value_and_grad(formula)(state.params, reference, tokens)
    np.testing.assert_allclose(output.loss, value, rtol=1e-5)
    assert value > 0.1
    for a, b in zip(*map(jax.tree.leaves, (found, expected)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5 * np.abs(b).max())


@pytest.fixture
def teacher(tmp_path, monkeypatch):
    """The folder of a teacher of another shape than the toys; of its run.json alone."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "teacher").mkdir()
    describe(replace(MODELS["llama"], d_model=128, n_layers=2))
    return "teacher"


def describe(model):
    save_run(Run("teacher", model, Batch(8, 32)), Path("teacher", "run.json"))


FAST = Case("stage=2", tuning="distillation", microbatches=2, layers=2)
SLOW = [
    Case("data=2,fsdp=2,tensor=2", tuning="dpo", microbatches=2, remat="selective"),
    Case("fsdp=2,context=2,tensor=2", tuning="distillation", remat="full"),
    Case("fsdp=4,tensor=2", "odd", tuning="distillation", microbatches=2),
    Case("context=4", tuning="dpo"),
    Case("data=2,tensor=4", "odd", tuning="dpo"),
    Case("fsdp=2,expert=2", "mixtral", tuning="dpo"),
    Case("data=2,fsdp=2", tuning="dpo of adapters"),
    Case("data=2,fsdp=2", "gpt", tuning="dpo", zero=1, microbatches=2),
    Case("fsdp=4", "gpt", tuning="distillation", zero=1),
    Case("fsdp=2,stage=2", tuning="dpo", microbatches=4, zero=1),
    Case("data=2,stage=2", "odd", tuning="distillation", microbatches=2, remat="selective"),
    Case("stage=2,tensor=2", tuning="dpo", microbatches=2, schedule="interleaved"),
    Case("stage=2,tensor=2", "gpt", tuning="distillation", microbatches=2, remat="full"),
    Case("stage=2", tuning="distillation", microbatches=2, schedule="interleaved"),
    Case("context=2,stage=2", tuning="distillation", microbatches=2, documents="packed"),
    Case("fsdp=2,stage=2", "mixtral", tuning="dpo", microbatches=2),
    Case("fsdp=2,stage=2", tuning="dpo of adapters", microbatches=2, zero=1),
]


@pytest.mark.parametrize(
    "case", [FAST, *(pytest.param(c, marks=pytest.mark.slow) for c in SLOW)], ids=str
)
def test_a_mesh_computes_what_one_device_does(case, teacher):
    # One teacher for all cases of a vocabulary: what one device computes is kept by case.
    vocab = case.run.model.vocab_size
    describe(replace(MODELS["llama"], d_model=128, n_layers=4, vocab_size=vocab))
    assert_equals_one_device(case)


@pytest.mark.slow
@pytest.mark.deviceless
@pytest.mark.parametrize("mesh", ["fsdp=8", "stage=2,fsdp=4"])
@pytest.mark.parametrize("tuning", ["dpo", "distillation"])
def test_the_closed_form_is_the_compiled_step_with_its_frozen_model(tuning, mesh, teacher):
    """What a frozen model adds to a step by cross-entropy: gathers, products, parameters.

    Of stages XLA drops the gather of a look-up behind the last microbatch, one of six here.
    """
    count = 4 if "stage" in mesh else 1
    run = wide(Case(mesh, tuning=tuning, remat="selective", microbatches=count))
    describe(replace(run.model, n_layers=2))
    plain = replace(run, train=replace(run.train, loss=None))
    added = []
    for price_of in (on_h100, lambda r: price(closed_form(r, r.mesh, H100), H100, ideal())):
        with_loss, without = price_of(run), price_of(plain)
        gathered = [moved(p)["fsdp", "all-gather"] for p in (with_loss, without)]
        flops = matrix_flops(with_loss) - matrix_flops(without)
        stored = [summarize(p, run).memory.parameters for p in (with_loss, without)]
        added.append((gathered[0] - gathered[1], flops, stored[0] - stored[1]))
    np.testing.assert_allclose(*added, rtol=0.05 if "stage" in mesh else 0.03)
