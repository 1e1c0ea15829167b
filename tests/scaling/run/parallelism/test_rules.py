"""From a run to rules: whatever the mesh, either every tensor is cut evenly or one message says
which number does not divide, by what, and what would."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.meshes.errors import InputError
from scaling.meshes.shape import MeshShape
from scaling.models.config import ModelConfig
from scaling.run import Batch, Run, Sharding
from scaling.run.parallelism.rules import (
    is_sequence_parallel,
    latent_axes,
    notes,
    resolved_mesh,
    rules_for,
    weight_axes,
)
from scaling.run.recipes import recipe

MODEL = ModelConfig(256, d_model=64, n_layers=2, n_heads=8, d_ff=96, n_kv_heads=4)
RUN = Run("run", MODEL, Batch(48, 96))
WEIGHTS = (  # logical dimensions of the weights of models/, layers apart
    ("vocab", "embed"),
    ("embed", "heads", None),
    ("embed", "kv_heads", None),
    ("heads", None, "embed"),
    ("embed", "mlp"),
    ("mlp", "embed"),
    ("heads", None),
    ("mlp",),
)
FEW = st.integers(1, 4)
MESHES = st.builds(
    MeshShape,
    data=FEW,
    fsdp=st.integers(1, 8),
    context=st.integers(1, 2),
    expert=st.integers(1, 2),
    tensor=st.integers(1, 8),
)


@st.composite
def runs(draw):
    """Small runs whose sizes often divide, and often do not."""
    kv_heads, group = draw(st.sampled_from([1, 2, 3, 4, 8])), draw(st.integers(1, 3))
    model = ModelConfig(
        vocab_size=draw(st.integers(1, 64)),
        d_model=draw(st.integers(1, 24)),
        n_layers=1,
        n_heads=kv_heads * group,
        n_kv_heads=kv_heads,
        head_dim=4,
        d_ff=draw(st.integers(1, 48)),
    )
    batch = Batch(draw(st.integers(1, 48)), draw(st.integers(1, 48)), draw(FEW))
    return Run("any", model, batch, sharding=Sharding(3, draw(st.none() | st.booleans())))


def sizes(run):
    """Size of each logical dimension of `run`."""
    model, batch = run.model, run.batch
    return {
        "embed": model.d_model,
        "heads": model.n_heads,
        "kv_heads": model.n_kv_heads,
        "mlp": model.d_ff,
        "vocab": model.vocab_size,
        "sequence": batch.seq_len,
        "residual": batch.seq_len,
    }


def message(run, mesh):
    """What `run` is refused with on `mesh`."""
    with pytest.raises(InputError) as raised:
        rules_for(run, mesh)
    return str(raised.value)


# --- any run on any mesh ------------------------------------------------------------------------


@given(runs(), MESHES)
def test_rules_cut_every_tensor_into_equal_parts(run, mesh):
    try:
        rules = rules_for(run, mesh)
    except InputError:
        return
    assert [d for d, size in sizes(run).items() if size % rules.shards(d)] == []
    more = {a: mesh.sizes[a] for a in ("expert", "context") if a not in rules.axes("embed")}
    shards = [rules.shards("embed") * size for size in more.values() if size > 1]
    assert all(run.model.d_model % size for size in shards)  # no more axes could shard weights
    per_microbatch, rest = divmod(run.batch.global_batch, run.batch.microbatches)
    assert rest == 0 and per_microbatch % rules.shards("batch") == 0
    for dims in WEIGHTS:  # no mesh axis on two dimensions of one tensor
        assert len(rules.spec(*dims)) == len(dims)


@given(runs(), MESHES)
def test_only_what_does_not_divide_is_refused(run, mesh):
    """The same question asked another way: whole numbers of heads, rows, ... on each device."""
    model, batch = run.model, run.batch
    residual = mesh.context * (mesh.tensor if is_sequence_parallel(run, mesh) else 1)
    pairs = [
        (batch.global_batch, mesh.data * mesh.fsdp * mesh.expert * batch.microbatches),
        (batch.seq_len, residual),
        (batch.seq_len, 2 * mesh.context if mesh.context > 1 else 1),
        (model.d_model, mesh.fsdp),
        *((n, mesh.tensor) for n in (model.n_heads, model.n_kv_heads, model.d_ff)),
    ]
    if all(size % parts == 0 for size, parts in pairs):
        rules_for(run, mesh)
    else:
        message(run, mesh)


# --- messages -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mesh", "words"),
    [
        ({"tensor": 3}, ["model.n_heads=8", "tensor=3", "1, 2, 4, 8"]),
        ({"tensor": 8}, ["model.n_kv_heads=4", "tensor=8", "1, 2, 4"]),
        ({"fsdp": 3}, ["model.d_model=64", "fsdp=3"]),
        ({"data": 5}, ["batch.global_batch=48", "data=5", "50"]),
        ({"data": 4, "fsdp": 8}, ["batch.global_batch=48", "data=4 x fsdp=8 = 32", "64"]),
        ({"context": 5}, ["batch.seq_len=96", "10", "context=5", "100", "2, 3, 4, 6, 8, 12"]),
        ({"context": 32}, ["batch.seq_len=96", "64", "context=32", "two chunks", "128"]),
    ],
)
def test_what_does_not_divide_is_said_with_the_numbers_and_the_fix(mesh, words):
    said = message(RUN, MeshShape(**mesh))
    assert all(word in said for word in words) and "use " in said


def test_microbatches_must_divide_each_shard_s_sequences():
    run = replace(RUN, batch=Batch(48, 96, microbatches=4))
    said = message(run, MeshShape(data=2, fsdp=4))
    words = ("batch.global_batch=48", "6 sequences", "8 batch shards", "batch.microbatches=4", "32")
    assert all(word in said for word in words)
    rules_for(run, MeshShape(data=2, fsdp=2))


def test_an_odd_sequence_fits_once_sequence_parallelism_is_off():
    run = replace(RUN, batch=Batch(48, 95, microbatches=48))
    mesh = MeshShape(tensor=2)
    assert "or switch sharding.sequence_parallel off" in message(run, mesh)
    rules_for(replace(run, sharding=Sharding(sequence_parallel=False)), mesh)


# --- choices ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("software", "tensor", "asked", "expected"),
    [
        ("jax", 1, None, False),
        ("jax", 2, None, True),
        ("megatron", 2, None, False),
        ("deepspeed", 4, None, False),
        ("jax", 2, False, False),
        ("megatron", 2, True, True),
    ],
)
def test_sequence_parallelism_is_on_for_jax_with_tensor_unless_said(
    software, tensor, asked, expected
):
    mesh = MeshShape(tensor=tensor)
    run = replace(RUN, software=software, sharding=Sharding(sequence_parallel=asked))
    assert is_sequence_parallel(run, mesh) is expected
    assert ("tensor" in rules_for(run, mesh).axes("stream")) is expected


@given(st.integers(1, 6), st.sampled_from([2, 4]))
def test_the_stream_is_cut_by_sequences_where_tensor_divides_them_else_along_them(
    sequences, tensor
):
    mesh = MeshShape(fsdp=2, tensor=tensor)
    rules = rules_for(replace(RUN, batch=Batch(4 * sequences, 96, microbatches=2)), mesh)
    assert rules.stream_cut == (("tensor",), 1 if sequences % tensor else 0)
    assert rules.axes("batch") == ("fsdp",) and rules.axes("sequence") == ()


@given(st.integers(1, 300), st.sampled_from([1, 2, 4]))
def test_a_vocabulary_that_does_not_divide_stays_whole_and_the_padding_is_named(vocab, tensor):
    run = replace(RUN, model=replace(MODEL, vocab_size=vocab))
    rules = rules_for(run, MeshShape(tensor=tensor))
    if vocab % tensor == 0:
        assert notes(run, rules) == [] and rules.shards("vocab") == tensor
        return
    (line,) = notes(run, rules)
    padded = int(line.split("vocab_size=")[-1].split()[0])
    assert rules.shards("vocab") == 1
    assert f"model.vocab_size={vocab} is not divisible by tensor={tensor}" in line
    assert padded % tensor == 0 and 0 < padded - vocab < tensor


def test_a_mesh_uses_exactly_the_devices_present():
    mesh = MeshShape(data=2, tensor=2)
    run = replace(RUN, mesh=mesh)
    assert resolved_mesh(run, 4) == resolved_mesh(run, None) == mesh
    with pytest.raises(InputError, match=r"needs 4 devices \(data 2 x tensor 2\), but 8 are pre"):
        resolved_mesh(run, 8)


@pytest.mark.parametrize(
    ("mesh", "of_weights", "of_latents"),
    [
        (MeshShape(fsdp=32, expert=16), ("fsdp", "expert"), ("fsdp", "expert")),
        (MeshShape(fsdp=32, expert=32), ("fsdp", "expert"), ("fsdp",)),
        (MeshShape(fsdp=32, expert=32, context=8), ("fsdp", "context"), ("fsdp", "context")),
    ],
    ids=str,
)
def test_latents_of_deepseek_v3_are_cut_over_fewer_axes_than_d_model(mesh, of_weights, of_latents):
    """7,168 is 1,024 x 7, and a latent 512 long."""
    run = replace(recipe("deepseek-v3"), mesh=mesh)
    long = lambda axes: tuple(axis for axis in axes if mesh.sizes[axis] > 1)
    found = long(weight_axes(run, mesh)), long(latent_axes(run, mesh))
    assert found == (of_weights, of_latents)
    rules = rules_for(replace(run, batch=Batch(32 * 32 * 8, 4096)), mesh)
    copied = [line for line in notes(run, rules) if "expert" in line]
    assert len(copied) == ("expert" not in of_latents)
    assert all(("latents" in line) == ("expert" in of_weights) for line in copied)
