"""The compiled step moves what the textbook says, and nothing else.

W: matrices of one layer over `tensor`; E: one table (embedding or head) over `tensor`; X: the
residual stream of one microbatch on one device, its sequence whole. Bytes made whole by a device:

    all-gather      fsdp     microbatches x (2 W layers + 2 E)     forward, again backward
    reduce-scatter  fsdp     microbatches x (W layers + 2 E)
    all-reduce      data     (W layers + 2 E) / fsdp               the shard, once per step
    all-gather      tensor   microbatches x (4 layers + 2) X       attention, MLP: forward, backward
    reduce-scatter  tensor   microbatches x (4 layers + 2) X       + 2: embedding and head

Recomputing a layer gathers X twice more (attention, MLP) and scatters it once more (attention).
Its weights are not gathered a third time, because the layer's backward pass follows at once. So
does the head's, whose table is gathered once; the embedding's needs no table.
"""

import functools
from collections import Counter
from collections.abc import Callable

import jax
import pytest

from scaling.compile.options import compiler_options
from scaling.meshes import catalog
from scaling.meshes.devices import absent_mesh, host_mesh
from scaling.meshes.rules import make_rules
from scaling.meshes.shape import MeshShape, parse_mesh
from scaling.models.accounting import block_parameters
from scaling.models.config import ModelConfig
from scaling.models.execution import DTYPES, Execution
from scaling.run import Batch, Train
from scaling.train.step import abstract_state, abstract_tokens, jitted_step

GPU_MODEL = ModelConfig(2048, d_model=512, n_layers=4, n_heads=8, head_dim=64, d_ff=1024)
CPU_MODEL = ModelConfig(128, d_model=64, n_layers=3, n_heads=8, head_dim=8, d_ff=128)
SMALLEST = {"bf16": 64 * 1024, "fp32": 4096}  # bytes; below are norms and statistics of the loss
MESHES = [
    "fsdp=8",
    "data=8",
    "tensor=8",
    "data=2,fsdp=4",
    "data=2,fsdp=2,tensor=2",
    "fsdp=4,tensor=2",
]
REMATS = ["none", "selective", "full"]
QUICK = {"xla_backend_optimization_level": 0}  # of LLVM's code, not of XLA's program
ROUNDING = 0.01  # norms that travel in the same instruction as matrices

Read = Callable[[str, MeshShape], list]
Table = dict[tuple[str, str], float]  # (axis, kind) -> bytes


def compiled(
    model: ModelConfig, execution: Execution, batch: Batch, mesh: jax.sharding.Mesh, options: dict
) -> jax.stages.Compiled:
    train = Train()
    with jax.set_mesh(mesh):
        state, tokens = abstract_state(model, execution, train), abstract_tokens(batch, execution)
        return jitted_step(train).lower(state, tokens).compile(compiler_options=options)


@functools.cache
def on_gpus(mesh: str, remat: str, microbatches: int = 1) -> jax.stages.Compiled:
    """The step for one DGX H100, without one."""
    shape = parse_mesh(mesh)
    return compiled(
        GPU_MODEL,
        Execution(
            make_rules(shape, sequence_parallel=True),
            compute="bf16",
            remat=remat,
            attention_kernel="cudnn",
        ),
        Batch(8 * microbatches, 512, microbatches),
        absent_mesh(shape, catalog.load("dgx-h100")),
        {**compiler_options("gpu"), "xla_gpu_autotune_level": 0},
    )


@functools.cache
def on_host(mesh: str, remat: str, microbatches: int = 1) -> jax.stages.Compiled:
    """The step for eight CPU devices; in float32, because XLA's CPU compiler sums nothing else."""
    shape = parse_mesh(mesh)
    return compiled(
        CPU_MODEL,
        Execution(make_rules(shape, sequence_parallel=True), compute="fp32", remat=remat),
        Batch(8 * microbatches, 32, microbatches),
        host_mesh(shape),
        QUICK,
    )


def textbook(
    model: ModelConfig, shape: MeshShape, remat: str, batch: Batch, compute: str = "bf16"
) -> Table:
    """The table at the top of this file, in bytes."""
    itemsize = DTYPES[compute](0).itemsize
    norms = 2 * model.d_model
    layers = model.n_layers * (sum(block_parameters(model).values()) - norms) / shape.tensor
    table = model.vocab_size * model.d_model / shape.tensor
    sequences = batch.global_batch / batch.microbatches / shape.batch_shards
    stream = sequences * batch.seq_len * model.d_model
    again = 0 if remat == "none" else model.n_layers
    per_microbatch = {
        ("fsdp", "all-gather"): 2 * layers + 2 * table,
        ("fsdp", "reduce-scatter"): layers + 2 * table,
        ("tensor", "all-gather"): (4 * model.n_layers + 2 + 2 * again) * stream,
        ("tensor", "reduce-scatter"): (4 * model.n_layers + 2 + again) * stream,
    }
    expected = {key: itemsize * batch.microbatches * n for key, n in per_microbatch.items()}
    summed = itemsize if batch.microbatches == 1 else 4  # accumulated in float32
    expected["data", "all-reduce"] = summed * (layers + 2 * table) / shape.fsdp
    return {(axis, kind): n for (axis, kind), n in expected.items() if getattr(shape, axis) > 1}


def measured(found: list, smallest: int) -> Table:
    """Bytes by axes and kind of the large collectives."""
    sums: Counter = Counter()
    for c in found:
        if c.size >= smallest and c.axes != ():
            sums["+".join(c.axes or ("?",)), c.kind] += c.size * c.calls
    return dict(sums)


def by_direction(table: Table) -> Table:
    """Gathers, and sums of either kind except those over `tensor`, by axis."""
    sums: Counter = Counter()
    for (axis, kind), n in table.items():
        if kind == "all-gather":
            sums[axis, "gathered"] += n
        elif axis != "tensor":
            sums[axis, "summed"] += n
    return dict(sums)


@pytest.mark.deviceless
@pytest.mark.parametrize("remat", REMATS)
@pytest.mark.parametrize("mesh", MESHES)
def test_the_gpu_program_is_the_textbook_table(mesh: str, remat: str, collectives: Read) -> None:
    shape = parse_mesh(mesh)
    found = collectives(on_gpus(mesh, remat).as_text(), shape)
    expected = textbook(GPU_MODEL, shape, remat, Batch(8, 512))
    assert measured(found, SMALLEST["bf16"]) == pytest.approx(expected, rel=ROUNDING)


@pytest.mark.deviceless
@pytest.mark.parametrize("mesh", ["data=8", "data=2,fsdp=4", "data=2,fsdp=2,tensor=2"])
def test_microbatches_are_reduced_over_data_once_in_float32(mesh: str, collectives: Read) -> None:
    shape = parse_mesh(mesh)
    found = collectives(on_gpus(mesh, "full", 2).as_text(), shape)
    expected = textbook(GPU_MODEL, shape, "full", Batch(16, 512, 2))
    assert measured(found, SMALLEST["bf16"]) == pytest.approx(expected, rel=ROUNDING)
    over_data = [c for c in found if c.axes == ("data",) and c.size >= SMALLEST["bf16"]]
    assert over_data and all(c.loops == 0 and c.dtype == "f32" for c in over_data)


@pytest.mark.deviceless
@pytest.mark.parametrize("remat", REMATS)
@pytest.mark.parametrize("mesh", MESHES)
def test_the_gpu_program_has_no_other_collective(mesh: str, remat: str, collectives: Read) -> None:
    found = collectives(on_gpus(mesh, remat).as_text(), parse_mesh(mesh))
    assert {c.kind for c in found} <= {"all-gather", "reduce-scatter", "all-reduce"}
    assert not [c.line for c in found if c.axes is None]
    assert not [c.line for c in found if len(set(c.operands)) < len(c.operands)]  # same data twice


@pytest.mark.deviceless
@pytest.mark.parametrize("mesh", ["fsdp=8", "data=2,fsdp=2,tensor=2"])
def test_recomputing_more_needs_less_gpu_memory(mesh: str) -> None:
    peaks = [on_gpus(mesh, remat).memory_analysis().peak_memory_in_bytes for remat in REMATS]
    assert peaks[0] > peaks[1] > peaks[2]


@pytest.mark.parametrize(
    "mesh, remat",
    [
        pytest.param("fsdp=8", "full", marks=pytest.mark.slow),
        ("data=2,fsdp=4", "selective"),
        ("data=2,fsdp=2,tensor=2", "none"),
    ],
)
def test_the_cpu_program_moves_the_same(mesh: str, remat: str, collectives: Read) -> None:
    """XLA's CPU compiler makes no reduce-scatter of an all-reduce, and sums over `tensor` more
    often: so sums are compared whatever their kind, and those over `tensor` not at all."""
    shape = parse_mesh(mesh)
    found = collectives(on_host(mesh, remat).as_text(), shape)
    expected = textbook(CPU_MODEL, shape, remat, Batch(8, 32), "fp32")
    sums = measured(found, SMALLEST["fp32"])
    assert by_direction(sums) == pytest.approx(by_direction(expected), rel=ROUNDING)


def test_on_the_cpu_too_microbatches_are_reduced_over_data_once(collectives: Read) -> None:
    mesh = "data=2,fsdp=2,tensor=2"
    found = collectives(on_host(mesh, "full", 2).as_text(), parse_mesh(mesh))
    over_data = [c for c in found if c.axes == ("data",) and c.size >= SMALLEST["fp32"]]
    expected = textbook(CPU_MODEL, parse_mesh(mesh), "full", Batch(16, 32, 2), "fp32")
    total = sum(c.size * c.calls for c in over_data)
    assert total == pytest.approx(expected["data", "all-reduce"], rel=ROUNDING)
    assert all(c.loops == 0 for c in over_data)


def test_gathered_weights_are_not_kept_for_the_backward_pass() -> None:
    """Even without remat the temporary memory stays below the whole weights of the layers."""
    shape = MeshShape(fsdp=8)
    model = ModelConfig(64, d_model=64, n_layers=8, n_heads=8, d_ff=512)
    execution = Execution(make_rules(shape, sequence_parallel=True), compute="fp32", remat="none")
    step = compiled(model, execution, Batch(8, 8), host_mesh(shape), QUICK)
    whole = 4 * model.n_layers * sum(block_parameters(model).values())
    assert step.memory_analysis().temp_size_in_bytes < whole


@pytest.mark.parametrize(
    "text, groups",
    [
        ("replica_groups={{0,1},{2,3}}", [[0, 1], [2, 3]]),
        ("replica_groups=[2,2]<=[4]", [[0, 1], [2, 3]]),
        ("replica_groups=[2,2]<=[2,2]T(1,0)", [[0, 2], [1, 3]]),
        ("replica_groups=mesh['a'=2,'b'=2] {'a'}", [[0, 2], [1, 3]]),
        ("replica_groups=mesh['a'=1,'b'=2,'c'=2] {'b','c'}", [[0, 1, 2, 3]]),
        ("replica_groups=mesh['a'=2,'b'=2], device_ids=([2,2]T(1,0)) {'b'}", [[0, 2], [1, 3]]),
    ],
)
def test_every_spelling_of_replica_groups_is_understood(
    text: str, groups: list, collectives: Read
) -> None:
    line = f"  %x = f32[8]{{0}} all-reduce(%y), {text}, use_global_device_ids=true"
    (found,) = collectives(f"ENTRY %main (y: f32[8]) -> f32[8] {{\n{line}\n}}", MeshShape(2, 2))
    axes = {((0, 1), (2, 3)): ("fsdp",), ((0, 2), (1, 3)): ("data",)}
    assert found.axes == axes.get(tuple(map(tuple, groups)), ("data", "fsdp"))
    assert (found.size, found.calls, found.loops) == (32, 1, 0)


def test_calls_in_loops_are_multiplied(collectives: Read) -> None:
    text = """\
%body (p: f32[8]) -> f32[8] {
  %s = (f32[8]{0}, f32[16]{0}) all-gather-start(%p), replica_groups={{0,1}}, dimensions={0}
}
%outer (q: f32[8]) -> f32[8] {
  %w = f32[8] while(%q), body=%body, backend_config={"known_trip_count":{"n":"5"}}
}
ENTRY %main (r: f32[8]) -> f32[8] {
  %v = f32[8] while(%r), body=%outer, backend_config={"known_trip_count":{"n":"3"}}
}"""
    (found,) = collectives(text, MeshShape(fsdp=2))
    assert (found.kind, found.axes, found.size) == ("all-gather", ("fsdp",), 64)
    assert (found.calls, found.loops, found.operands) == (15, 2, ("p",))
