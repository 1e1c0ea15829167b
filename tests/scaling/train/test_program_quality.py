"""What an expert looks for in the text of the step that XLA compiled for H100s.

Every tensor that remat keeps is stacked once, what it does not keep is computed again, and no
gather or scatter of the residual stream comes with a copy of it. `models.accounting` says what is
kept.
"""

import re
from dataclasses import replace
from math import prod

import pytest

from scaling.analytic.program import closed_form
from scaling.compare.audit import audit
from scaling.models.accounting import activation_bytes
from scaling.models.accounting.remat import Kept
from scaling.profiles.io import ideal
from scaling.program.ir import kernels
from scaling.run import Run, read_run
from scaling.simulate.step import price
from scaling.train.program import program_of_run
from tests.harness import H100

pytestmark = pytest.mark.deviceless

LAYERS, SEQ = 5, 2048  # five is the first dimension of nothing else
MODEL = {
    "vocab_size": 8192, "d_model": 1024, "n_layers": LAYERS, "n_heads": 8, "n_kv_heads": 4,
    "head_dim": 128, "d_ff": 2816, "mlp": "swiglu", "norm": "rmsnorm", "positions": "rope",
}  # fmt: skip
COPY = re.compile("transpose|copy")  # XLA's names of kernels that only move
ITEMSIZE = {"bf16": 2, "f32": 4}  # bytes, by XLA's names
REMATS = [
    "selective",
    Kept(("query", "attention")),
    Kept(("value", "attention_out", "mlp_up")),
    "minimal_with_context",
    Kept(("attention",), ("query", "mlp_up")),
]
MESHES = [({"fsdp": 8}, 2), ({"fsdp": 2, "tensor": 4}, 4)]  # sequences of a batch shard


def step_of(mesh: dict[str, int], sequences: int) -> Run:
    batch = {"global_batch": sequences * mesh["fsdp"], "seq_len": SEQ}
    run = {"name": "step", "model": MODEL, "batch": batch, "mesh": mesh, "remat": "selective"}
    return read_run(run, "run.json")


@pytest.mark.parametrize("remat", REMATS, ids=str)
@pytest.mark.parametrize(("mesh", "sequences"), MESHES)
def test_what_remat_keeps_is_stacked_once_and_the_rest_computed_again(mesh, sequences, remat):
    run = replace(step_of(mesh, sequences), remat=remat)
    program, text = program_of_run(run, run.mesh, H100)
    assert audit(price(program, H100, ideal()), run, run.mesh) == []  # FLOPs and collectives
    loops = [line.split(" while(")[0] for line in text.splitlines() if " while(" in line]
    forward = next(line for line in loops if f"[{LAYERS}," in line)
    stacks = re.findall(rf"(bf16|f32)\[{LAYERS},([\d,]+)\]", forward)
    saved = [(kind, dims) for kind, dims in stacks if str(SEQ) in dims.split(",")]
    kept = activation_bytes(run.model, sequences, SEQ, remat)
    assert len(saved) == len(kept), saved
    size = lambda kind, dims: ITEMSIZE[kind] * prod(map(int, dims.split(",")))
    of_layer = sum(size(*stack) for stack in saved)
    assert of_layer == sum(kept.values()) / mesh.get("tensor", 1)


def test_what_is_offloaded_goes_to_the_host_and_back_beside_the_layers():
    run = replace(step_of({"fsdp": 8}, 2), remat=Kept(("attention",), ("query", "mlp_up")))
    program, _ = program_of_run(run, run.mesh, H100)
    kept = activation_bytes(run.model, 2, SEQ, run.remat)
    on_host = LAYERS * (kept["q"] + kept["up"])
    copies = [(k, n) for k, n in kernels(program) if k.host_bytes]
    assert sum(k.host_bytes * n for k, n in copies) == 2 * on_host
    assert all(kernel.asynchronous for kernel, _ in copies)
    closed = price(closed_form(run, run.mesh, H100), H100, ideal()).memory
    assert price(program, H100, ideal()).memory.pinned_host == closed.pinned_host == on_host


@pytest.mark.parametrize(
    ("sequences", "copies"), [(4, 0), (2, 1)], ids=["cut by batch", "cut by sequence"]
)
def test_the_stream_is_not_copied_around_what_tensor_exchanges(sequences, copies):
    """Where `tensor` does not divide the batch it is: so the test can fail."""
    run = step_of({"fsdp": 2, "tensor": 4}, sequences)
    program, _ = program_of_run(run, run.mesh, H100)
    stream = sequences * SEQ * run.model.d_model * 2  # bytes
    in_layers = [k for k, calls in kernels(program) if calls == LAYERS]
    large = [k.name for k in in_layers if COPY.search(k.name) and k.bytes > stream / 4]
    assert bool(large) == bool(copies), large
