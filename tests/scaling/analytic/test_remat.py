"""Remat by name in closed form: what is kept, where, and what is computed again."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.analytic.program import analytic_program
from scaling.meshes import catalog
from scaling.meshes.host_link import host_bandwidth
from scaling.meshes.shape import MeshShape
from scaling.models.accounting import activation_bytes, train_flops
from scaling.models.accounting.remat import SavedTensors, kept_by, tensor_names
from scaling.models.config import ModelConfig, Moe
from scaling.profiles.io import ideal
from scaling.program.ir import Program, collectives, kernels
from scaling.run import Batch, Run
from scaling.simulate.memory import memory_use
from scaling.simulate.step import price

LAYERS, SEQUENCES, SEQ = 4, 2, 64
EXCHANGE = "all-to-all"
LLAMA = ModelConfig(1024, d_model=64, n_layers=LAYERS, n_heads=8, n_kv_heads=4, d_ff=128)
EXPERTS = replace(LLAMA, moe=Moe(8, 2, 64, capacity_factor=1.0))
MODELS = {
    "llama": LLAMA,
    "gpt": replace(LLAMA, mlp="gelu"),
    "qk_norm": replace(LLAMA, qk_norm=True),
    "experts": EXPERTS,
}
SHAPE = MeshShape(fsdp=2)
SUBSETS = st.sampled_from(sorted(MODELS)).flatmap(
    lambda name: st.tuples(
        st.just(MODELS[name]),
        st.lists(st.sampled_from(tensor_names(MODELS[name])), unique=True).map(tuple),
    )
)


def run_of(model: ModelConfig, remat, attention: str = "flash") -> Run:
    batch = Batch(2 * SEQUENCES, SEQ)
    return Run("toy", model, batch, SHAPE, remat=remat, attention=attention)


def flops_of(program: Program) -> float:
    return float(sum(kernel.flops * calls for kernel, calls in kernels(program)))


def kept_in(program: Program) -> float:
    (buffer,) = (b for b in program.buffers if b.name == "activations")
    return float(buffer.bytes)


@given(SUBSETS)
def test_any_list_keeps_what_the_accounting_says(subset) -> None:
    model, names = subset
    program = analytic_program(run_of(model, SavedTensors(names)), SHAPE)
    one = activation_bytes(model, SEQUENCES, SEQ, SavedTensors(names))
    assert kept_in(program) == LAYERS * sum(one.values())


@given(SUBSETS)
def test_any_list_computes_again_what_the_accounting_says(subset) -> None:
    model, names = subset
    if model.moe:
        return  # whose buffers have empty rows: the next test
    found = flops_of(analytic_program(run_of(model, SavedTensors(names), "unfused"), SHAPE))
    assert found == pytest.approx(
        train_flops(model, 2 * SEQUENCES, SEQ, SavedTensors(names)).total / 2
    )


def test_kept_rows_of_experts_are_not_sent_again() -> None:
    shape = MeshShape(expert=2)
    run = lambda *names: replace(run_of(EXPERTS, SavedTensors(names)), mesh=shape)
    sent = [
        sum(c.bytes * n for c, n in collectives(analytic_program(r, shape)) if c.kind == EXCHANGE)
        for r in (run("expert_input"), run("attention"))
    ]
    assert 0 < sent[0] < sent[1]


@given(SUBSETS, st.integers(0, 8))
def test_what_is_offloaded_leaves_the_device_and_comes_back_once(subset, first: int) -> None:
    model, names = subset
    save, offload = names[:first], names[first:]
    kept = analytic_program(run_of(model, SavedTensors(names)), SHAPE)
    moved = analytic_program(run_of(model, SavedTensors(save, offload)), SHAPE)
    on_host = memory_use(moved).pinned_host
    assert kept_in(moved) + on_host == pytest.approx(kept_in(kept))
    assert flops_of(moved) == flops_of(kept)
    copied = sum(float(np.sum(k.host_bytes * n)) for k, n in kernels(moved))
    assert copied == pytest.approx(2 * on_host)


def test_copies_take_the_time_of_the_link_where_nothing_hides_them() -> None:
    cluster = catalog.load("dgx-h100")
    model = replace(LLAMA, d_model=2048, d_ff=8192, head_dim=256)
    alone = kept_by("minimal_offloaded")
    assert alone is not None
    run = replace(run_of(model, alone), batch=Batch(16, 2048), mesh=SHAPE)
    priced = price(analytic_program(run, SHAPE), cluster, ideal())
    copied = 2 * priced.memory.pinned_host / host_bandwidth(cluster)
    assert priced.timeline.host < copied < priced.timeline.total
    assert priced.timeline.host > copied / 2
