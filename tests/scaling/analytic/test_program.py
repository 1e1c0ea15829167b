"""The analytic Program against the model's own counts, the table, and closed forms of pipelines."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaling.analytic.experts import has_kernels
from scaling.analytic.program import analytic_program
from scaling.analytic.software import software_traits, traits_of
from scaling.analytic.step import REMATS, Grid, step_sizes
from scaling.analytic.table import transfers
from scaling.meshes import catalog
from scaling.meshes.errors import InputError
from scaling.meshes.shape import MeshShape, parse_mesh
from scaling.models.accounting import train_flops
from scaling.models.config import ModelConfig, Moe
from scaling.models.lora import Lora
from scaling.profiles.io import ideal
from scaling.program.ir import Loop, Wait, collectives, kernels, operations
from scaling.run import Batch, Pipeline, Precision, Run, Sharding
from scaling.run.recipes import recipe
from scaling.simulate.step import price, running_kernels
from scaling.simulate.summary import collective_lines

H100 = catalog.load("dgx-h100")
DENSE = ModelConfig(1024, d_model=64, n_layers=8, n_heads=8, n_kv_heads=4, head_dim=8, d_ff=128)
EXPERTS = replace(DENSE, moe=Moe(8, 2, 64, capacity_factor=1.0))
SOFTWARE = sorted(software_traits())
SIZES = st.sampled_from([1, 2, 4])
MESHES = st.builds(MeshShape, data=SIZES, fsdp=SIZES, tensor=SIZES, expert=SIZES, context=SIZES)
RUNS = st.builds(
    lambda software, model, sequences, microbatches, remat, zero, parallel: Run(
        "toy",
        model,
        Batch(64 * sequences * microbatches, 64, microbatches),
        sharding=Sharding(zero, parallel),
        remat=remat,
        software=software,
    ),
    st.sampled_from(SOFTWARE),
    st.sampled_from([DENSE, EXPERTS]),
    st.integers(1, 2),
    st.integers(1, 4),
    st.sampled_from(["none", "selective", "full"]),
    st.integers(0, 3),
    st.booleans(),
)


def flops_of(run: Run, shape: MeshShape) -> float:
    program = analytic_program(run, shape)
    return float(sum(kernel.flops * calls for kernel, calls in kernels(program)))


def moved(run: Run, shape: MeshShape) -> dict[tuple[str, str], float]:
    """Bytes per step by axes and kind, of the Program."""
    found: dict[tuple[str, str], float] = {}
    for call, calls in collectives(analytic_program(run, shape)):
        key = "+".join(call.axes), call.kind
        found[key] = found.get(key, 0.0) + float(call.bytes * call.part * calls)
    return found


PIPELINES = st.builds(
    MeshShape, data=SIZES, fsdp=SIZES, tensor=SIZES, stage=st.sampled_from([2, 4])
)


@given(RUNS, PIPELINES, st.sampled_from([("1f1b", 1), ("interleaved", 2)]))
def test_the_trainers_pipeline_moves_what_the_table_says(run, shape, how) -> None:
    batch = replace(run.batch, microbatches=4, global_batch=256)
    run = replace(run, software="jax", model=DENSE, batch=batch, pipeline=Pipeline(*how))
    check_moves_what_the_table_says(run, shape)


@given(RUNS, MESHES)
def test_a_program_moves_what_the_table_says(run: Run, shape: MeshShape) -> None:
    check_moves_what_the_table_says(run, shape)


def check_moves_what_the_table_says(run: Run, shape: MeshShape) -> None:
    expected: dict[tuple[str, str], float] = {}
    for line in transfers(step_sizes(run, shape)):
        if line.axes and line.bytes * line.calls:
            key = line.axes, line.kind
            expected[key] = expected.get(key, 0.0) + float(line.bytes * line.calls)
    assert moved(run, shape) == pytest.approx(expected)


@given(RUNS)
def test_without_remat_all_devices_compute_the_models_flops(run: Run) -> None:
    """Flash attention has five products backward for its two forward, others two for each."""
    run = replace(run, remat="none", attention="unfused")
    shape = MeshShape(data=2, fsdp=2, tensor=4)
    expected = train_flops(run.model, run.batch.global_batch, run.batch.seq_len)
    found = flops_of(run, shape) * shape.devices
    parallel = run.sharding.sequence_parallel or run.software != "jax" or not run.model.moe
    router = 0 if parallel else 3 * expected.groups["router"]
    if run.model.moe and not run.sharding.sequence_parallel:
        router = (shape.tensor - 1) * expected.groups["router"]  # on each device of tensor
    assert found == pytest.approx(expected.total + router)


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "interleaved", "zero_bubble"])
@pytest.mark.parametrize("microbatches", [4, 16])
def test_the_bubble_is_the_work_of_the_other_stages(schedule: str, microbatches: int) -> None:
    """(S - 1) / V of the time of one microbatch (arXiv 2104.04473, section 2.2)."""
    virtual = 2 if schedule == "interleaved" else 1
    model = replace(DENSE, vocab_size=1, n_layers=16, d_model=4096, d_ff=16384)
    run = Run(
        *("toy", model, Batch(8 * microbatches, 512, microbatches), MeshShape(stage=4)),
        pipeline=Pipeline(schedule, virtual),
        attention="unfused",
        software="megatron",
    )
    quick = replace(traits_of("megatron"), launch=0.0)  # else the host is what these layers take
    priced = price(analytic_program(run, run.mesh, traits=quick), H100, ideal())
    loops = {op.name: op for op in priced.program.schedule if isinstance(op, Loop)}
    assert loops["bubble"].trips == 12 / virtual
    of_layers = (k for k, _ in running_kernels(priced) if k.origin.layer.startswith("layers"))
    work = sum(float(priced.timeline.by_name[kernel.name]) for kernel in of_layers)
    share, whole = float(priced.timeline.bubble) / work, 3 / virtual
    if schedule == "zero_bubble":
        assert share < 0.8 * whole / (whole + microbatches)
    else:
        assert share == pytest.approx(whole / (whole + microbatches), rel=1e-6)


def test_a_host_that_issues_megatrons_operations_decides_what_a_narrow_layer_takes() -> None:
    """Forward 14 operations, backward 42; full remat runs the forward ones twice."""
    times = {}
    for layers, remat in product((8, 16), ("none", "full")):
        model = replace(DENSE, n_layers=layers, mlp="gelu")
        run = Run("toy", model, Batch(4, 512, 2), software="megatron", attention="unfused")
        run = replace(run, precision=Precision(parameters="bf16"))
        slow = replace(traits_of("megatron"), launch=1e-3)
        program = analytic_program(replace(run, remat=remat), MeshShape(), traits=slow)
        times[layers, remat] = float(price(program, H100, ideal()).timeline.total)
    per_layer = lambda remat: (times[16, remat] - times[8, remat]) / 8 / 2 / 1e-3
    assert per_layer("none") == pytest.approx(14 + 42, rel=1e-5)
    assert per_layer("full") == pytest.approx(2 * 14 + 42, rel=1e-5)


@given(RUNS, MESHES)
def test_remat_costs_flops_and_saves_memory(run: Run, shape: MeshShape) -> None:
    found = []
    for remat in ("none", "selective", "full"):
        program = analytic_program(replace(run, remat=remat), shape)
        kept = {b.name: float(b.bytes) for b in program.buffers}["activations"]
        found.append((sum(float(k.flops * n) for k, n in kernels(program)), kept))
    flops, kept = zip(*found, strict=True)
    assert flops[0] <= flops[1] <= flops[2] and flops[0] < flops[2]
    assert kept[0] >= kept[1] >= kept[2]


def test_zero_shards_one_thing_more_at_each_stage() -> None:
    """Parameters, gradients and state of 16 bytes a parameter (arXiv 1910.02054, figure 1)."""
    precision = Precision(parameters="bf16", gradients="bf16")
    run = Run("toy", DENSE, Batch(8, 64), precision=precision, software="deepspeed")
    model_state = []
    for stage in range(4):
        program = analytic_program(replace(run, sharding=Sharding(stage, False)), MeshShape(fsdp=8))
        of_state = ("parameters", "gradients", "optimizer_state")
        model_state.append(sum(float(b.bytes) for b in program.buffers if b.category in of_state))
    count = model_state[0] / 16
    assert model_state == pytest.approx(
        [16 * count, (4 + 12 / 8) * count, (2 + 14 / 8) * count, 16 / 8 * count]
    )


def test_uneven_shards_are_padded() -> None:
    """Thirty layers over four stages, seven heads over two devices: the fullest counts."""
    even = Run("toy", replace(DENSE, n_layers=32), Batch(8, 64, 4), software="megatron")
    uneven = replace(even, model=replace(even.model, n_layers=30))
    stages = MeshShape(stage=4)
    assert flops_of(uneven, stages) <= flops_of(even, stages)
    heads = replace(even, model=replace(DENSE, n_heads=7, n_kv_heads=7))
    padded = replace(even, model=replace(DENSE, n_heads=8, n_kv_heads=8, head_dim=8))
    tensor = MeshShape(tensor=2)
    assert flops_of(heads, tensor) == pytest.approx(flops_of(padded, tensor))


def test_what_cannot_be_is_one_message() -> None:
    run = Run("toy", DENSE, Batch(4, 64), software="megatorn")
    with pytest.raises(InputError, match="'megatorn' is not described.*did you mean 'megatron'"):
        analytic_program(run, MeshShape())
    with pytest.raises(InputError, match="global_batch=4 is less than a sequence.*at least 8"):
        analytic_program(replace(run, software="jax"), MeshShape(fsdp=8))


GRID = [
    (microbatches, sequences, zero, remat)
    for microbatches in (1, 2, 4)
    for sequences in (128, 256)
    for zero in range(4)
    for remat in range(3)
]


@pytest.mark.parametrize("software", ["jax", "megatron"])
@pytest.mark.parametrize("mesh", ["data=2,fsdp=2,tensor=2", "fsdp=2,stage=4", "fsdp=2,expert=4"])
def test_configurations_at_once_are_each_by_itself(mesh: str, software: str) -> None:
    model = replace(EXPERTS if "expert" in mesh else DENSE, n_layers=4)
    run = Run("toy", model, Batch(128, 64), software=software)
    shape, place = parse_mesh(mesh), H100
    grid = Grid(*(np.array(column, float) for column in zip(*GRID, strict=True)))
    profile = ideal()
    every = price(analytic_program(run, shape, grid), place, profile)
    for i, (microbatches, sequences, zero, remat) in enumerate(GRID):
        one = replace(
            run,
            batch=Batch(sequences, 64, microbatches),
            sharding=Sharding(zero),
            remat=REMATS[remat],
        )
        alone = price(analytic_program(one, shape), place, profile)
        assert every.timeline.total[i] == pytest.approx(float(alone.timeline.total), rel=1e-6)
        assert every.memory.peak[i] == pytest.approx(float(alone.memory.peak))


def test_a_call_that_is_hidden_in_part_has_its_latency_once() -> None:
    run = Run("toy", DENSE, Batch(64, 64), software="pytorch-fsdp")
    place = catalog.load("dgx-h100", nodes=2)
    priced, whole = (
        price(analytic_program(run, MeshShape(fsdp=16), traits=traits), place, ideal())
        for traits in (None, replace(traits_of("pytorch-fsdp"), hidden_weights=1.0))
    )
    halves = [c for c, _ in collectives(priced.program) if c.part < 1]
    assert len(halves) > 2 and priced.program != whole.program
    total = lambda step: sum(step.collectives[c.name].time for c, _ in collectives(step.program))
    assert total(priced) == pytest.approx(total(whole))
    assert [(c.bytes, c.count) for c in collective_lines(priced)] == [
        (c.bytes, pytest.approx(c.count)) for c in collective_lines(whole)
    ]


@given(RUNS, MESHES)
def test_operations_of_one_name_are_one(run: Run, shape: MeshShape) -> None:
    found: dict[str, object] = {}
    for op, _ in operations(analytic_program(run, shape).schedule):
        if not isinstance(op, Wait):
            assert found.setdefault(op.name, op) == op


def test_adapters_of_square_matrices_have_the_columns_of_one_device_of_tensor():
    run = recipe("llama3-8b")  # the matrix of its queries is as wide as it is long
    run = replace(run, train=replace(run.train, lora=Lora()))
    found = {k.name: k for k, _ in kernels(analytic_program(run, MeshShape(tensor=8)))}
    assert found["forward adapter of q"].dims[2] == 4096 / 8
    assert found["forward adapter of v"].dims[2] == 8 * 128 / 8


def test_products_of_groups_of_rows_are_never_in_8_bits():
    """Their operands take as many bytes as those of a run in bf16 (`models.float8`)."""
    model = replace(DENSE, moe=Moe(8, 2, 64))
    run = Run("toy", model, Batch(8, 64), precision=Precision(compute="bf16"))
    eight = replace(run, precision=Precision(compute="fp8"))
    grouped = [
        {k.name: (k.bytes, k.dtype) for k, _ in kernels(program) if k.kind == "grouped"}
        for program in (analytic_program(r, MeshShape(fsdp=2)) for r in (run, eight))
    ]
    assert grouped[0] and grouped[0] == grouped[1]


@pytest.mark.parametrize(("software", "runs_beside"), [("jax", True), ("megatron", False)])
def test_the_trainer_exchanges_tokens_beside_casts_copies_and_gradients_of_weights(
    software: str, runs_beside: bool
) -> None:
    mesh = MeshShape(expert=8)
    run = Run("toy", replace(DENSE, moe=Moe(8, 2, 64)), Batch(8, 64), mesh=mesh, software=software)
    sent = [
        call
        for call, _ in collectives(analytic_program(run, mesh))
        if "tokens of experts" in call.name
    ]
    assert sent and {call.asynchronous for call in sent} == {runs_beside}


@pytest.mark.parametrize(("tensor", "width"), [(1, 2880), (4, 720), (8, 360)])
def test_gpt_oss_has_kernels_of_experts_where_blocks_divide_what_tensor_leaves(tensor, width):
    mesh = MeshShape(tensor=tensor)
    step = step_sizes(replace(recipe("gpt-oss-20b"), mesh=mesh), mesh)
    assert has_kernels(step) == (width % 16 == 0)
