"""Attention over `context` is attention: output and gradients equal those of one device."""

import functools
from typing import Any

import jax
import numpy as np
import pytest

from scaling.meshes.devices import host_mesh
from scaling.meshes.rules import make_rules
from scaling.meshes.shape import MeshShape, parse_mesh
from scaling.models.attention import ScoreRules, attend
from scaling.models.attention_kernels.zigzag import zigzag_order
from scaling.models.documents import documents_of
from scaling.models.execution import Execution

B, S, N, M, K = 2, 32, 4, 2, 4
LATENT = 3  # of values, where they are not as long as keys
# Documents within a chunk, over several devices, of one token; padding behind them.
SEGMENTS = np.repeat([[1, 2, 3, 4, 0]] * B, [5, 1, 17, 6, 3], axis=1).astype(np.int32)
QUICK = {"xla_backend_optimization_level": 0}  # of LLVM's code, not of XLA's program
RTOL = 1e-4


def execution_on(mesh: MeshShape, method: str = "ring", remat: str = "none") -> Execution:
    return Execution(
        make_rules(mesh, sequence_parallel=True), compute="fp32", remat=remat, context_method=method
    )


@functools.cache
def drawn(values: int = K) -> tuple[np.ndarray, ...]:
    """q, k, v of this length and the gradient of the output, in natural order."""
    noise = np.random.default_rng(0)
    shapes = (B, S, N, K), (B, S, M, K), (B, S, M, values), (B, S, N, values)
    return tuple(noise.standard_normal(shape).astype(np.float32) for shape in shapes)


def placed_on(execution: Execution, values: int = K) -> list[jax.Array]:
    """What is drawn, in zigzag order on the mesh that is set."""
    heads = "heads", "kv_heads", "kv_heads", "heads"
    specs = [execution.spec("batch", "sequence", head, None) for head in heads]
    places, mesh = zigzag_order(S, execution.rules.mesh.context), jax.sharding.get_mesh()
    return [
        jax.device_put(x[:, places], jax.NamedSharding(mesh, spec))
        for x, spec in zip(drawn(values), specs, strict=True)
    ]


def computed(
    mesh: MeshShape,
    execution: Execution,
    window: int | None,
    values: int = K,
    packed: bool = False,
) -> list[np.ndarray]:
    """Output and gradients of q, k and v, in natural order."""
    places = zigzag_order(S, mesh.context)

    def both(q: jax.Array, k: jax.Array, v: jax.Array, dout: jax.Array, *segments: Any) -> tuple:
        documents = documents_of(segments[0], places) if segments else None
        function = lambda *x: attend(*x, execution, ScoreRules(window), documents)
        out, back = jax.vjp(function, q, k, v)
        return out, *back(dout)

    with jax.set_mesh(host_mesh(mesh)):
        placed = placed_on(execution, values)
        if packed:
            place = jax.NamedSharding(jax.sharding.get_mesh(), execution.spec("batch", "sequence"))
            placed.append(jax.device_put(SEGMENTS[:, places], place))
        results = jax.jit(both).lower(*placed).compile(compiler_options=QUICK)(*placed)
    back = np.argsort(places)
    return [np.asarray(x)[:, back] for x in results]


@functools.cache
def on_one_device(window: int | None, values: int, packed: bool) -> list[np.ndarray]:
    return computed(MeshShape(), execution_on(MeshShape()), window, values, packed)


def check(
    mesh: str,
    method: str,
    window: int | None,
    remat: str = "none",
    values: int = K,
    packed: bool = False,
) -> None:
    shape = parse_mesh(mesh)
    found = computed(shape, execution_on(shape, method, remat), window, values, packed)
    expected = on_one_device(window, values, packed)
    for name, one, other in zip(("out", "q", "k", "v"), expected, found, strict=True):
        # Who sees itself only has no gradient of q and k: rounding remains of it.
        largest = np.abs(one).max() or np.abs(expected[0]).max()
        np.testing.assert_allclose(other, one, RTOL, 1e-5 * largest, err_msg=name)


# Chunks of 8 and 4 tokens: windows within a chunk, of a chunk and one more, of several, of all.
FAST = [
    ("context=2", "ring", None),
    ("context=2", "all-gather", 9),
    ("context=4", "ring", 9),
    ("context=4", "ring", 1),
    ("data=2,context=2,tensor=2", "ring", 13),
]


@pytest.mark.parametrize(("mesh", "method", "window"), FAST)
def test_output_and_gradients_equal_those_of_one_device(mesh, method, window):
    check(mesh, method, window)


@pytest.mark.parametrize(
    ("method", "window", "remat"), [("ring", None, "full"), ("all-gather", 9, "none")]
)
def test_values_of_another_length_than_keys_travel_unpadded(method, window, remat):
    check("context=4", method, window, remat, LATENT)


@pytest.mark.parametrize(("mesh", "method", "window"), [("context=4", "ring", None), FAST[1]])
def test_packed_documents_do_not_see_one_another_on_any_device(mesh, method, window):
    check(mesh, method, window, packed=True)


def test_positions_of_documents_are_those_of_the_natural_order():
    places = zigzag_order(S, 4)
    with jax.set_mesh(host_mesh(MeshShape())):
        expected = jax.jit(documents_of)(SEGMENTS).positions_BS
        found = jax.jit(lambda x: documents_of(x, places))(SEGMENTS[:, places]).positions_BS
    assert np.array_equal(found, np.asarray(expected)[:, places])


@pytest.mark.slow
@pytest.mark.parametrize("window", [None, 1, 2, 3, 4, 5, 8, 13, 31, 32])
@pytest.mark.parametrize("method", ["ring", "all-gather"])
@pytest.mark.parametrize("mesh", ["context=2", "context=4", "context=8", "context=4,tensor=2"])
def test_any_window_on_any_number_of_devices_equals_one_device(mesh, method, window):
    check(mesh, method, window)


@pytest.mark.parametrize(("method", "window"), [("all-gather", None), ("ring", 5)])
def test_keys_that_a_recomputed_layer_keeps_give_the_same_gradients(method, window):
    check("context=4", method, window, "full")


def residuals(method: str, remat: str) -> int:
    """Elements that the backward pass of one layer keeps."""
    mesh = MeshShape(context=4)
    execution = execution_on(mesh, method, remat)
    with jax.set_mesh(host_mesh(mesh)):
        placed = placed_on(execution)
        back = jax.eval_shape(
            lambda *x: jax.vjp(lambda *y: attend(*y, execution, ScoreRules()), *x)[1], *placed[:3]
        )
    return sum(leaf.size for leaf in jax.tree.leaves(back))


@pytest.mark.parametrize("method", ["ring", "all-gather"])
def test_a_layer_keeps_q_k_v_its_output_and_log_sum_exp_and_no_other_devices_keys(method):
    q, k, v, out = (x.size for x in drawn())
    assert residuals(method, "none") == q + k + v + out + B * S * N


def test_a_layer_that_is_recomputed_as_a_whole_keeps_others_keys_too():
    """All four devices' on each of them, or what came first."""
    _, k, v, _ = (x.size for x in drawn())
    least = residuals("ring", "none")
    assert residuals("all-gather", "full") == least + k + v
    assert residuals("ring", "full") == least + k + v
