"""A loss in chunks: the numbers of one device without chunks, and the products of the head."""

from collections.abc import Callable, Iterator
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.analytic.program import analytic_program
from scaling.comparing.discrepancy import ONCE_PER_STEP, PASSED_ON_ONCE
from scaling.meshes.devices import host_mesh
from scaling.meshes.shape import parse_mesh
from scaling.models.accounting import logits
from scaling.models.accounting.logits import LARGEST_LOGITS, loss_chunks
from scaling.models.config import ModelConfig
from scaling.models.head import gather_tokens, linear_cross_entropy
from scaling.program.ir import kernels
from scaling.run import Batch, Precision, Run
from scaling.simulate.step import running_kernels
from scaling.training.step import eval_step
from tests.harness import (
    H100,
    RTOL,
    SEQ_LEN,
    SEQUENCES,
    Case,
    assert_equals_one_device,
    compiled,
    discrepancies,
    execution_of,
    on_h100,
    placed,
    stepped_alone,
)

V, D = 48, 32
FEW = 8 * 1024  # bytes: 4 to 16 chunks of the toys' logits
Z_LOSS = 0.1
slow = lambda *args, **values: pytest.param(Case(*args, **values), marks=pytest.mark.slow)
Patch = Callable[[], None]


@pytest.fixture
def few_logits(monkeypatch: pytest.MonkeyPatch) -> Iterator[Patch]:
    """Makes logits of few tokens at a time; nothing that is compiled so is kept."""

    def patch() -> None:
        monkeypatch.setattr(logits, "LARGEST_LOGITS", FEW)
        compiled.cache_clear()

    yield patch
    compiled.cache_clear()


# --- the function ---------------------------------------------------------------------------------


def computed(mesh: str, z_loss: float, weighted: bool) -> list[np.ndarray]:
    """Both losses of random hidden states, and the gradients of states and head."""
    execution = execution_of(Case(mesh).run)
    draw = np.random.default_rng(0)
    arrays = draw.standard_normal((SEQUENCES, SEQ_LEN, D)), draw.standard_normal((V, D)) / 4
    weights = draw.integers(3, size=(SEQUENCES, SEQ_LEN)).astype(np.float32)
    weights *= weights.size / weights.sum()
    targets = draw.integers(V, size=(SEQUENCES, SEQ_LEN)).astype(np.int32)

    def loss(x_BSD: jax.Array, head_VD: jax.Array, *given: jax.Array) -> tuple:
        x_BSD = gather_tokens(execution, x_BSD)
        return linear_cross_entropy(execution, x_BSD, head_VD, *given, z_loss=z_loss)

    with jax.set_mesh(host_mesh(execution.rules.mesh)):
        place = lambda x, *dims: jax.device_put(x, execution.spec(*dims))
        x = place(np.float32(arrays[0]), "stream", "residual", None)
        head = place(np.float32(arrays[1]), "vocab", "embed")
        given = [place(x, "batch", "sequence") for x in (targets, weights)[: 1 + weighted]]
        both = jax.jit(jax.value_and_grad(loss, argnums=(0, 1), has_aux=True))(x, head, *given)
    if mesh == "data=1":

        def plain(x: jax.Array, head: jax.Array) -> tuple[jax.Array, jax.Array]:
            logits = x @ head.T
            each = optax.softmax_cross_entropy_with_integer_labels(logits, targets)
            w = weights if weighted else 1.0
            z = jnp.square(jax.nn.logsumexp(logits, axis=-1))
            return ((each + z_loss * z) * w).mean(), (each * w).mean()

        with jax.default_matmul_precision("highest"):
            right = jax.value_and_grad(plain, (0, 1), has_aux=True)(*map(jnp.float32, arrays))
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, 1e-4, 1e-7), both, right)
    return [np.asarray(leaf) for leaf in jax.tree.leaves(both)]


@pytest.mark.parametrize(("z_loss", "weighted"), [(0.0, False), (Z_LOSS, True)])
def test_losses_and_gradients_equal_their_formula_in_chunks_and_on_a_mesh(
    z_loss: float, weighted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = computed("data=1", z_loss, weighted)
    assert (expected[0] > expected[1]) == bool(z_loss)
    monkeypatch.setattr(logits, "LARGEST_LOGITS", FEW)
    for mesh in ("data=1", "fsdp=2,context=2,tensor=2", "fsdp=2,tensor=4"):
        for one, other in zip(computed(mesh, z_loss, weighted), expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-7)


@given(st.integers(1, 2**20), st.integers(1, 2**20))
def test_chunks_are_as_few_as_fit_and_of_equal_size(tokens: int, vocab: int) -> None:
    chunks, least = loss_chunks(tokens, vocab), -(-4 * tokens * vocab // LARGEST_LOGITS)
    assert tokens % chunks == 0
    assert chunks == 1 or least <= chunks <= 2 * least
    assert (chunks == 1) or 4 * tokens * vocab > LARGEST_LOGITS
    if tokens.bit_count() == 1 and least <= tokens:
        assert 4 * tokens // chunks * vocab <= LARGEST_LOGITS


# --- the step -------------------------------------------------------------------------------------

CASES = [
    slow("data=2,fsdp=2,tensor=2", microbatches=2),
    slow("fsdp=2,stage=2,tensor=2", "odd", microbatches=2),
    slow("fsdp=2,context=2,tensor=2", "gpt", "full", zero=1),
    Case(),
    slow("fsdp=2,tensor=4", "odd", sequence_parallel=False),
    slow("fsdp=4,tensor=2", "odd"),
    slow("fsdp=2,stage=2,tensor=2", "qwen", microbatches=2),
    slow("data=2,fsdp=2,stage=2", "qwen", microbatches=2, zero=1),
    slow("expert=2,context=2,tensor=2", "mixtral", "selective", 2),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_step_with_a_loss_in_chunks_equals_that_of_one_device(
    case: Case, few_logits: Patch
) -> None:
    stepped_alone(case.alone)
    few_logits()
    assert_equals_one_device(case)
    if not case.run.model.tied_embeddings and not case.run.model.moe:
        found = discrepancies(case)
        assert {d.reason for d in found} <= {ONCE_PER_STEP, PASSED_ON_ONCE}, found


@pytest.mark.parametrize("mesh", ["fsdp=2,tensor=2", "data=2,stage=2"])
def test_held_out_loss_in_chunks_equals_that_of_the_step(mesh: str, few_logits: Patch) -> None:
    case = Case(mesh, microbatches=2)
    expected = stepped_alone(case.alone)["metrics"]["loss 1"]
    few_logits()
    with jax.set_mesh(host_mesh(case.run.mesh)):
        state, tokens = placed(case.run)
        value = jax.jit(partial(eval_step, case.run.train))(state.params, tokens)
    assert float(value) == pytest.approx(expected, rel=RTOL)


# --- the program ----------------------------------------------------------------------------------

LARGE = ModelConfig(
    128256, d_model=4096, n_layers=2, n_heads=32, n_kv_heads=8, d_ff=14336
)  # two layers of Llama 3 8B
SEQUENCE = 8192


@pytest.mark.deviceless
@pytest.mark.parametrize(
    ("mesh", "sequences"),
    [("fsdp=8", 2), ("fsdp=4,tensor=2", 2), ("fsdp=8", 40)],  # the last beyond the memory
)
def test_gpu_program_multiplies_by_the_head_three_times_and_keeps_no_logits(
    mesh: str, sequences: int
) -> None:
    shape = parse_mesh(mesh)
    batch = Batch(sequences * shape.batch_shards, SEQUENCE)
    precision = Precision("bf16")
    run = Run("large", LARGE, batch, shape, precision=precision, remat="selective")
    priced, closed = on_h100(run), analytic_program(run, shape)
    rows = LARGE.vocab_size // shape.tensor
    of_head = lambda found: sum(k.flops * n for k, n in found if "head" in k.origin.layer)
    one = 2.0 * sequences * SEQUENCE * rows * LARGE.d_model
    assert of_head(running_kernels(priced)) == pytest.approx(3 * one)
    assert of_head(kernels(closed)) == pytest.approx(3 * one)
    whole = 4 * sequences * SEQUENCE * rows
    assert LARGEST_LOGITS < whole
    assert max(b.bytes for b in priced.program.buffers if not b.persistent) < whole
    assert (priced.memory.peak > H100.accelerator.usable_memory) == (sequences > 2)
