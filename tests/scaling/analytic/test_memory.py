"""Memory of a step in closed form: what shards what, and what more work adds."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.analytic.program import analytic_program
from scaling.analytic.saved import activations, kept_tensors
from scaling.analytic.step import step_sizes
from scaling.meshes.shape import parse_mesh
from scaling.models.accounting import count_parameters
from scaling.models.accounting.logits import LARGEST_LOGITS
from scaling.run import Batch, read_run
from scaling.run.recipes import recipe
from scaling.simulate.memory import memory_use

OTHERS = ("megatron", "nemo", "deepspeed", "pytorch-fsdp")
SOFTWARE = st.sampled_from(("jax", *OTHERS))
REMATS = st.sampled_from(("none", "selective", "full"))


def described(name, mesh, software="jax", sequences=1, microbatches=1, remat="full", zero=3):
    shape, base = parse_mesh(mesh), recipe(name)
    batch = Batch(shape.batch_shards * sequences * microbatches, 2048, microbatches)
    sharding = replace(base.sharding, zero_stage=zero)
    run = replace(base, mesh=shape, batch=batch, software=software, remat=remat, sharding=sharding)
    return run, shape


def use(*arguments, **settings):
    return memory_use(analytic_program(*described(*arguments, **settings)))


@pytest.mark.parametrize("software", OTHERS)
def test_other_software_shards_the_optimizer_over_context_too(software):
    whole = use("llama3-1b", "context=8", software, zero=0).by_category["optimizer_state"]
    shard = use("llama3-1b", "context=8", software, zero=1).by_category["optimizer_state"]
    both = use("llama3-1b", "fsdp=2,context=4", software, zero=1).by_category["optimizer_state"]
    assert shard == both == whole / 8


def test_replicas_over_data_stay_whole():
    one = use("llama3-1b", "context=2", "megatron", zero=0)
    many = use("llama3-1b", "data=4,context=2", "megatron", zero=1)
    assert many.by_category["optimizer_state"] == one.by_category["optimizer_state"]


def test_routed_experts_are_not_sharded_over_their_own_axis():
    """Each of 8 devices has an eighth of the experts, and of the rest of the states."""
    run, _ = described("mixtral-8x7b", "expert=8", "megatron", zero=1)
    found = use("mixtral-8x7b", "expert=8", "megatron", zero=1).by_category["optimizer_state"]
    states = 8 if run.precision.parameters == "fp32" else 12
    assert found == pytest.approx(states * count_parameters(run.model).total / 8, rel=1e-3)


@pytest.mark.parametrize("factor", [None, 4.0])
def test_of_experts_rows_in_use_are_kept_or_whole_buffers(factor):
    """Mixtral's two experts of eight: over eight devices a buffer has four rows for each in use.
    Kernels keep the tokens of all devices and 1.25 rows for each; batches of products all."""
    run, shape = described("mixtral-8x7b", "expert=8", remat="none")
    moe = replace(run.model.moe, capacity_factor=factor)
    run = replace(run, model=replace(run.model, moe=moe))
    kept = {k.tensor.name: k.device for k in kept_tensors(step_sizes(run, shape), moe=True)}
    tokens, inputs = 2048, 8 * 2048 * 1
    rows = inputs if factor else 1.25 * tokens * 2
    assert kept["norm2_output"] == 2 * tokens * 4096
    assert kept["expert_input"] == 2 * inputs * 4096 and kept["expert_up"] == 2 * rows * 14336


@given(SOFTWARE, REMATS, st.integers(1, 4), st.integers(1, 4))
def test_a_larger_batch_needs_no_less(software, remat, sequences, microbatches):
    """Beside what is saved by one chunk of the loss more: at most a chunk and its gradient."""
    mesh, slack = "fsdp=4,tensor=2", 1.5 * LARGEST_LOGITS * (software == "jax")
    smaller = -slack + use("llama3-1b", mesh, software, sequences, microbatches, remat).peak
    assert use("llama3-1b", mesh, software, sequences + 1, microbatches, remat).peak >= smaller
    more = use("llama3-1b", mesh, software, sequences, microbatches + 1, remat).peak
    assert more >= smaller  # of as many sequences each


@given(SOFTWARE, REMATS, st.sampled_from((0, 1, 2, 3)), st.integers(0, 5))
def test_more_shards_need_no_more(software, remat, zero, power):
    if software == "jax" and zero == 2:
        zero = 3  # not trained
    fewer, more = (
        use("llama3-1b", f"fsdp={2**n}", software, 2, 2, remat, zero).peak
        for n in (power + 1, power + 2)
    )
    assert more <= fewer


@given(SOFTWARE, REMATS, st.sampled_from(("fsdp=8", "stage=4,fsdp=2", "tensor=4,context=2")))
def test_the_owners_sum_to_the_peak(software, remat, mesh):
    found = use("llama3-1b", mesh, software, 1, 4, remat)
    assert sum(found.by_category.values()) == pytest.approx(found.peak)
    assert all(size >= 0 for size in found.by_category.values())


@pytest.mark.parametrize(
    ("layers", "width", "heads", "stages", "none", "selective"),
    [(96, 12288, 96, 8, 66.844, 12.352), (105, 20480, 128, 35, 114.023, 23.076)],
)
def test_activations_are_those_of_the_paper_on_sequence_parallelism(
    layers, width, heads, stages, none, selective
):
    """Korthikanti et al. 2022, figure 1: GPT-3 175B and MT-NLG 530B with dropout, GiB."""
    for remat, parallel, expected in (("none", False, none), ("selective", True, selective)):
        batch = {"global_batch": 70, "seq_len": 2048, "microbatches": 70}
        size = {"n_layers": layers, "d_model": width, "n_heads": heads, "d_ff": 4 * width}
        kind = {"mlp": "gelu", "norm": "layernorm", "positions": "learned", "bias": True}
        document = {
            "model": {"vocab_size": 51200, **size, **kind},
            **{"batch": batch, "mesh": {"stage": stages, "tensor": 8}, "dropout": 0.1},
            "pipeline": {"schedule": "interleaved", "virtual_stages": 3},
            **{"precision": {"compute": "fp16"}, "sharding": {"sequence_parallel": parallel}},
            **{"remat": remat, "attention": "unfused", "software": "megatron"},
        }
        run = read_run(document, "paper")
        assert activations(step_sizes(run, run.mesh)) / 2**30 == pytest.approx(expected, rel=0.005)
