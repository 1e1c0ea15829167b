"""What `context` has to move: numbers by hand, and the two methods against each other."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.analytic.table import Table, expected_bytes
from scaling.meshes.shape import MeshShape
from scaling.models.config import ModelConfig
from scaling.models.presets import preset
from scaling.run import Batch, Context, Precision, Run

BF16 = 2
MODEL = ModelConfig(1000, d_model=64, n_layers=3, n_heads=8, n_kv_heads=4, head_dim=8, d_ff=128)
METHODS = ("ring", "all-gather")
RUNS = st.builds(
    lambda sequences, microbatches, remat, window, kv: Run(
        "toy",
        replace(MODEL, sliding_window=window, n_kv_heads=kv),
        Batch(16 * sequences * microbatches, 128, microbatches),
        remat=remat,
        precision=Precision("fp32"),
    ),
    st.integers(1, 3),
    st.integers(1, 3),
    st.sampled_from(["none", "selective", "full"]),
    st.none() | st.integers(1, 128),
    st.sampled_from([4, 8]),
)
MESHES = st.builds(
    MeshShape,
    data=st.sampled_from([1, 2]),
    fsdp=st.sampled_from([1, 2, 4]),
    context=st.sampled_from([2, 4, 8]),
    tensor=st.sampled_from([1, 2, 4]),
)


def moved(run: Run, shape: MeshShape, method: str, smallest: float = 0) -> Table:
    return expected_bytes(replace(run, context=Context(method)), shape, smallest)


def test_llama3_8b_over_eight_devices_of_context_by_hand():
    # One sequence of 8192 tokens: 1024 on a device, keys and values of 8 heads of 128 each.
    run = Run("long", preset("llama3-8b"), Batch(1, 8192))
    kv = BF16 * 1024 * 2 * 8 * 128
    layer = 2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336
    gradients = BF16 * (32 * layer + 2 * 128_256 * 4096)
    gathered = gradients + BF16 * 32 * layer  # weights forward and again backward; tables once
    norms = 4 * 4096 * 2 * 32  # two in each layer, float32; the last one is below 64 KiB
    shape = MeshShape(context=8)
    assert norms / 32 < 64 * 1024
    assert moved(run, shape, "ring", 64 * 1024) == {
        ("context", "all-gather"): gathered,
        ("context", "reduce-scatter"): gradients,
        ("context", "permute"): 32 * (7 + 7 + 7) * kv,  # forward, again backward, gradients
    }
    assert moved(run, shape, "all-gather", 64 * 1024) == {
        ("context", "all-gather"): gathered + 32 * 2 * 8 * kv,
        ("context", "reduce-scatter"): gradients + 32 * 8 * kv,
    }


def test_a_layer_that_is_recomputed_goes_around_the_ring_again_and_gathers_no_more():
    """But for the first of its three steps: those keys are kept for the backward pass."""
    run, shape = Run("toy", MODEL, Batch(4, 128)), MeshShape(context=4)
    again = replace(run, remat="full")
    ring = "context", "permute"
    assert moved(again, shape, "ring")[ring] / moved(run, shape, "ring")[ring] == (9 + 2) / 9
    assert moved(again, shape, "all-gather") == moved(run, shape, "all-gather")


@given(RUNS, MESHES)
def test_a_device_receives_as_many_bytes_by_either_method(run: Run, shape: MeshShape) -> None:
    """Without a window: of what is gathered its own part is there. Recomputing is apart."""
    remat = "none" if run.remat == "full" else run.remat
    run = replace(run, model=replace(run.model, sliding_window=None), remat=remat)
    ring, gather = (moved(run, shape, method) for method in METHODS)
    kinds = ("context", "all-gather"), ("context", "reduce-scatter")  # both move weights as well
    received = sum(gather[kind] - ring.get(kind, 0.0) for kind in kinds)
    own = 1 / shape.context
    assert ring["context", "permute"] == pytest.approx(received * (1 - own))


@given(RUNS, MESHES, st.sampled_from(METHODS))
def test_a_window_never_moves_more(run: Run, shape: MeshShape, method: str) -> None:
    whole = replace(run, model=replace(run.model, sliding_window=None))
    full, less = moved(whole, shape, method), moved(run, shape, method)
    assert less.keys() <= full.keys()
    assert all(n <= full[key] for key, n in less.items())
