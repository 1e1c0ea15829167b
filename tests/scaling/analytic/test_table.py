"""What a step has to move: numbers by hand, and what holds for every model and mesh."""

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from scaling.analytic.table import SMALLEST, expected_bytes, expected_transfers
from scaling.meshes.errors import InputError
from scaling.meshes.shape import AXES, MeshShape, parse_mesh
from scaling.models.accounting import count_parameters
from scaling.models.config import Mla, ModelConfig, Moe
from scaling.models.presets import preset
from scaling.run import Batch, Precision, Run, Sharding
from scaling.run.recipes import recipe

BF16, FLOAT32 = 2, 4
SIZES = st.sampled_from([1, 2, 4])
MESHES = st.builds(MeshShape, data=SIZES, fsdp=SIZES, tensor=SIZES)
MODELS = st.builds(
    ModelConfig,
    vocab_size=st.sampled_from([1000, 1001]),  # 1001 is cut by none of the sizes above
    d_model=st.sampled_from([64, 128]),
    n_layers=st.integers(1, 4),
    n_heads=st.just(8),
    n_kv_heads=st.sampled_from([4, 8]),
    d_ff=st.sampled_from([128, 384]),
    mlp=st.sampled_from(["swiglu", "gelu"]),
    norm=st.sampled_from(["rmsnorm", "layernorm"]),
    positions=st.sampled_from(["rope", "learned"]),
    tied_embeddings=st.booleans(),
    bias=st.booleans(),
    qk_norm=st.booleans(),
)
RUNS = st.builds(
    lambda model, sequences, microbatches, remat, parallel, compute: Run(
        "toy",
        model,
        Batch(16 * sequences * microbatches, 32, microbatches),
        sharding=Sharding(sequence_parallel=parallel),
        precision=Precision(compute=compute),
        remat=remat,
    ),
    MODELS,
    st.integers(1, 3),
    st.integers(1, 3),
    st.sampled_from(["none", "selective", "full"]),
    st.sampled_from([None, False]),
    st.sampled_from(["bf16", "tf32", "fp32"]),
)


def run_of(
    model: ModelConfig, sequences: int, length: int, microbatches: int = 1, **changes
) -> Run:
    return Run("toy", model, Batch(sequences, length, microbatches), **changes)


def close(table: dict) -> object:
    return pytest.approx(table, rel=1e-12)


def test_llama3_8b_fully_sharded_by_hand() -> None:
    # q and o 4096 x 4096, k and v 4096 x 1024, gate, up and down 4096 x 14336
    layer = 2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336
    assert layer == 218_103_808
    tables = 2 * 128_256 * 4096  # embedding and head
    run = run_of(preset("llama3-8b"), 128, 8192, remat="full")
    assert expected_bytes(run, MeshShape(fsdp=64)) == {
        ("fsdp", "all-gather"): BF16 * (2 * 32 * layer + tables),
        ("fsdp", "reduce-scatter"): BF16 * (32 * layer + tables),
    }


def test_gpt3_on_three_axes_by_hand() -> None:
    # 12 D^2 weights in a layer, over 8 devices. 8 does not divide the vocabulary of 50,257, so
    # embedding and head are whole, tied, and meet the 1/8 of the tokens that a device has.
    D, L, S = 12_288, 96, 2048
    layer, table, positions = 12 * D**2 // 8, 50_257 * D, 2048 * D
    stream = BF16 * 6 * S * D  # 6 sequences
    run = run_of(preset("gpt3-175b"), 2 * 64 * 2 * 6, S, 2, remat="full")
    assert expected_bytes(run, parse_mesh("data=2,fsdp=64,tensor=8")) == close(
        {
            ("fsdp", "all-gather"): 2 * BF16 * (2 * L * layer + 2 * table + positions),
            ("fsdp", "reduce-scatter"): 2 * BF16 * (L * layer + 2 * table + positions),
            ("data", "all-reduce"): FLOAT32 * (L * layer + table + positions) / 64,
            ("tensor", "all-reduce"): 2 * BF16 * (table + positions) / 64,
            # forward and backward of attention and MLP, and recomputed
            ("tensor", "all-gather"): 2 * (2 + 2 + 2) * L * stream,
            ("tensor", "reduce-scatter"): 2 * (2 + 2 + 1) * L * stream,
            # two norms of scale and shift, biases of o and down; and the final norm
            ("data+fsdp+tensor", "all-reduce"): 2 * FLOAT32 * (6 * D * L + 2 * D),
        }
    )


def test_whole_sequences_on_tensor_by_hand() -> None:
    # 4 x 2048 tokens on a device. Sums of the stream: attention and MLP of 4 layers, forward and
    # backward, one more for the embedding and for the head's gradient.
    model = ModelConfig(32_000, d_model=1024, n_layers=4, n_heads=16, d_ff=2816)
    layer = (4 * 1024 * 1024 + 3 * 1024 * 2816) // 4
    run = run_of(model, 8, 2048, sharding=Sharding(sequence_parallel=False))
    assert expected_bytes(run, MeshShape(data=2, tensor=4)) == {
        ("tensor", "all-reduce"): (4 * 4 + 2) * BF16 * 4 * 2048 * 1024,
        ("data", "all-reduce"): BF16 * (4 * layer + 2 * 32_000 * 1024 // 4),
    }


def test_mixtral_over_experts_by_hand() -> None:
    # 8,192 tokens on each of 64 devices; experts see those of 8 of them
    attention = 2 * 4096 * 4096 + 2 * 4096 * 1024
    expert = 3 * 4096 * 14336
    router, tables, tokens = 4096 * 8, 2 * 32_000 * 4096, 8 * 8192
    run = run_of(preset("mixtral-8x7b"), 128, 4096, remat="selective")
    assert expected_bytes(run, MeshShape(fsdp=8, expert=8)) == {
        ("fsdp", "all-gather"): BF16 * 2 * 32 * expert,
        ("fsdp", "reduce-scatter"): BF16 * 32 * expert,
        ("fsdp+expert", "all-gather"): BF16 * (2 * 32 * attention + tables)
        + FLOAT32 * 2 * 32 * router,
        ("fsdp+expert", "reduce-scatter"): BF16 * (32 * attention + tables) + FLOAT32 * 32 * router,
        # tokens out, gradients of results, out again; a token's two weights and experts out twice
        ("expert", "all-gather"): 32 * tokens * (3 * BF16 * 4096 + 2 * 2 * (FLOAT32 + 4)),
        ("expert", "reduce-scatter"): 32 * tokens * (2 * BF16 * 4096 + 2 * FLOAT32),
    }


def test_deepseek_like_layers_with_tensor_by_hand() -> None:
    # One dense and two layers of 4 experts, 2 on a device, and a shared one; 2 x 512 tokens.
    moe = Moe(4, 2, 256, n_shared_experts=1, first_dense_layers=1, capacity_factor=1.5)
    model = ModelConfig(1000, 128, 3, 4, 512, moe=moe)
    run = run_of(model, 8, 512, 2)
    table = expected_bytes(run, parse_mesh("data=2,expert=2,tensor=2"), smallest=0)
    tokens = 512  # of one microbatch on one device
    rows = 4 * (3 * tokens * 2 // (2 * 4))  # 4 experts with room for 1.5 of an even load
    assert table["expert", "all-to-all"] == 2 * 2 * rows * (4 * BF16 * 128 + 2 * FLOAT32)
    stream = BF16 * tokens * 128
    chosen = tokens * 2 * 4  # bytes of two float32 or int32 per token
    assert table["tensor", "all-gather"] == 2 * ((4 * 3 + 2) * stream + 2 * 2 * chosen)
    assert table["tensor", "reduce-scatter"] == 2 * ((4 * 3 + 2) * stream + 2 * chosen)
    attention, expert, dense = 4 * 128 * 128, 3 * 128 * 256, 3 * 128 * 512
    # each device's two experts, and half of all else; float32, as accumulated
    others = (3 * attention + dense + 2 * expert + 2 * 1000 * 128) / 2
    halves = (others + 2 * 128 * 4) / 2
    assert table["data", "all-reduce"] == FLOAT32 * (2 * 2 * expert / 2 + halves)
    wide = 2 * FLOAT32 * 2 * 128 * 4  # routers
    tables = 2 * 1000 * 128 / 2
    gathered = 2 * BF16 * (2 * others - tables) + 2 * wide
    assert table["expert", "all-gather"] == gathered
    assert table["expert", "reduce-scatter"] == 2 * BF16 * others + wide


def test_experts_on_data_and_context_by_hand() -> None:
    # Two sequences of 512 on each device of data, half of each on those of context.
    model = ModelConfig(1000, 128, 3, 4, 512, moe=Moe(4, 2, 256, n_shared_experts=1))
    run = run_of(model, 8, 512)
    table = expected_bytes(run, parse_mesh("data=2,expert=2,context=2"), smallest=0)
    tokens = 2 * 256
    both = 3 * 2 * tokens  # tokens of the devices along expert in three layers
    assert table["expert", "all-gather"] == both * (2 * BF16 * 128 + 2 * (FLOAT32 + 4))
    assert table["expert", "reduce-scatter"] == both * (2 * BF16 * 128 + 2 * FLOAT32)
    # context cuts d_model of experts, expert and context that of all else
    attention, expert = 4 * 128 * 128, 3 * 128 * 256
    experts, tables = BF16 * 3 * 2 * expert, BF16 * 2 * 1000 * 128
    layers = BF16 * 3 * (attention + expert)
    routers, norms = FLOAT32 * 3 * 128 * 4, FLOAT32 * (2 * 3 + 1) * 128
    load = FLOAT32 * 3 * (2 * 4 + 3)
    assert table["context", "all-gather"] == 2 * experts
    assert table["context", "reduce-scatter"] == experts
    assert table["expert+context", "all-gather"] == 2 * (layers + routers) + tables
    assert table["expert+context", "reduce-scatter"] == layers + routers + tables
    assert table["data", "all-reduce"] == experts / 2 + (layers + routers + tables) / 4
    assert table["data+expert+context", "all-reduce"] == norms + load
    assert table["context", "permute"] == BF16 * 3 * 3 * tokens * 2 * 128


def test_latents_by_hand() -> None:
    # 4 x 512 tokens on a device. In place of the stream the attention takes 96 + 64 + 32 latents;
    # the matrices that make them are whole over tensor, and meet half a stream on each device.
    mla = Mla(96, 64, qk_nope_head_dim=16, qk_rope_head_dim=32, v_head_dim=24)
    model = ModelConfig(1000, 128, 3, 4, 256, mla=mla)
    making = 128 * (96 + 64 + 32)
    cut = 96 * 4 * 48 + 64 * 4 * (16 + 24) + 4 * 24 * 128 + 3 * 128 * 256
    run = run_of(model, 8, 512, remat="full")
    table = expected_bytes(run, MeshShape(data=2, tensor=2), smallest=0)
    token = BF16 * 4 * 512
    assert table["tensor", "all-gather"] == token * (((3 + 1) * 3 + 2) * 128 + 2 * 3 * 192)
    assert table["tensor", "reduce-scatter"] == token * (((3 + 1) * 3 + 2) * 128 + 3 * 192)
    assert table["data", "all-reduce"] == BF16 * (3 * cut + 2 * 1000 * 128) / 2
    vectors = 3 * (2 * 128 + 96 + 64) + 128
    assert table["data+tensor", "all-reduce"] == BF16 * 3 * making + FLOAT32 * vectors


def test_statistics_of_the_loss_count_where_they_are_large() -> None:
    run = run_of(preset("llama3-8b"), 16, 8192)  # 2 sequences on a device: 64 KiB each
    lines = [line for line in expected_transfers(run, MeshShape(fsdp=8, tensor=8)) if line.axes]
    (found,) = [line for line in lines if line.what == "statistics of the loss"]
    assert (found.axes, found.kind, found.bytes, found.calls) == (
        "tensor",
        "all-reduce",
        SMALLEST,
        3,
    )
    fewer = run_of(preset("llama3-8b"), 8, 8192)
    assert ("tensor", "all-reduce") not in expected_bytes(fewer, MeshShape(fsdp=8, tensor=8))


def test_norms_of_heads_are_summed_over_tensor_and_cut_biases_are_not() -> None:
    model = ModelConfig(1000, d_model=64, n_layers=3, n_heads=8, d_ff=128, qk_norm=True, bias=True)
    run = run_of(model, 8, 32, sharding=Sharding(sequence_parallel=False))
    table = expected_bytes(run, MeshShape(fsdp=2, tensor=2), smallest=0)
    assert table["fsdp+tensor", "all-reduce"] == FLOAT32 * 3 * 2 * 8  # scales of q and k
    biases = (3 * 64 + 2 * 128) / 2 + 2 * 64  # q, k, v, gate, up; o, down
    assert table["fsdp", "all-reduce"] == FLOAT32 * (3 * (biases + 2 * 64) + 64)  # norms; the last


@given(RUNS, MESHES)
def test_only_axes_of_several_devices_move_anything(run: Run, shape: MeshShape) -> None:
    for (axes, _), n in expected_bytes(run, shape, smallest=0).items():
        assert axes and all(shape.sizes[axis] > 1 for axis in axes.split("+"))
        assert n > 0


@given(RUNS, MESHES)
def test_scattered_gradients_are_the_matrices_of_the_model(run: Run, shape: MeshShape) -> None:
    """Counted in another way: all parameters but the vectors, the head also where it is tied."""
    assume(shape.fsdp > 1)
    model = replace(run.model, bias=False, vocab_size=1000, positions="rope")
    run = replace(run, model=model)
    norms = model.d_model * (2 * model.n_layers + 1)
    norms += 2 * model.head_dim * model.n_layers if model.qk_norm else 0
    head = model.vocab_size * model.d_model if model.tied_embeddings else 0
    matrices = count_parameters(model).total - norms + head
    itemsize = {"bf16": 2, "tf32": 4, "fp32": 4}[run.precision.compute]
    table = expected_bytes(run, shape, smallest=0)
    over_devices = table["fsdp", "reduce-scatter"] * shape.tensor
    assert over_devices == pytest.approx(run.batch.microbatches * itemsize * matrices)


@given(RUNS, MESHES, st.permutations(AXES))
def test_the_device_order_changes_names_only(run: Run, shape: MeshShape, order: list) -> None:
    def named(table: dict) -> dict:
        return {(frozenset(axes.split("+")), kind): n for (axes, kind), n in table.items()}

    other = replace(shape, device_order=tuple(order))
    again = expected_bytes(run, other, smallest=0)
    assert named(again) == close(named(expected_bytes(run, shape, smallest=0)))
    for axes, _ in again:
        assert axes == "+".join(axis for axis in order if axis in axes.split("+"))


def test_what_is_not_trained_has_no_table() -> None:
    with pytest.raises(InputError, match="n_heads=4 is not divisible by tensor=8"):
        expected_bytes(run_of(preset("tiny"), 8, 32), MeshShape(tensor=8))


def test_a_sequence_of_one_token_has_no_chunks_to_exchange():
    run = replace(recipe("tiny"), batch=Batch(8, 1))
    assert {t.kind for t in expected_transfers(run, MeshShape(fsdp=8))} >= {"all-gather"}
