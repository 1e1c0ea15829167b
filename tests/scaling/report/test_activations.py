"""What remat keeps, tensor by tensor: the rows sum up to the buffers of the step."""

from dataclasses import replace

import pytest

from scaling.analytic.program import analytic_program
from scaling.analytic.saved import saved_rows
from scaling.api.sharding import sharding
from scaling.meshes.shape import parse_mesh
from scaling.models.accounting.remat import SavedTensors
from scaling.report.shardings import saved_table
from scaling.run import Batch
from scaling.run.recipes import recipe

OFFLOADED = SavedTensors(("query", "attention"), ("mlp_up",))


@pytest.mark.parametrize("remat", ["none", "selective", "full", "minimal", OFFLOADED], ids=str)
@pytest.mark.parametrize(
    ("name", "mesh", "microbatches"),
    [("llama3-1b", "fsdp=4,tensor=2", 1), ("tiny-moe", "expert=2", 2), ("tiny", "stage=2", 4)],
)
def test_rows_sum_up_to_the_buffers_of_the_step(name, mesh, microbatches, remat):
    shape = parse_mesh(mesh)
    batch = Batch(8 * microbatches, 64, microbatches)
    run = replace(recipe(name), mesh=shape, batch=batch, remat=remat)
    buffers = {buffer.name: buffer.bytes for buffer in analytic_program(run, shape).buffers}
    rows = saved_rows(run, shape)
    total = lambda memory: sum(row.bytes for row in rows if row.memory == memory)
    assert total("device") == pytest.approx(float(buffers["activations"]))
    assert total("host") == pytest.approx(float(buffers["offloaded"]))


def test_each_tensor_is_named_with_its_memory_and_its_bytes():
    run = replace(recipe("llama3-8b"), batch=Batch(8, 1024), remat=OFFLOADED)
    text = saved_table(saved_rows(run, parse_mesh("fsdp=8")), run.remat)
    first, _, *lines = text.splitlines()
    assert first == "remat query,attention,mlp_up@host keeps for the backward pass"
    cells = [line.split() for line in lines]
    of_layer = 2 * 1024 * 14336  # bytes: bf16, hidden units of one sequence
    assert ["up", "mlp_up", "host", f"{of_layer:,}", f"{32 * of_layer:,}"] in cells
    assert ["block_input", "device", f"{2 * 1024 * 4096:,}", f"{32 * 2 * 1024 * 4096:,}"] in cells
    assert cells[-1][-1] == f"{32 * of_layer:,}" and "host" in cells[-1]


def test_scaling_sharding_has_them_in_its_document():
    run = replace(recipe("tiny"), remat=OFFLOADED)
    document = sharding(run, "fsdp=2").to_dict()
    assert document["remat"] == "query,attention,mlp_up@host"
    kept = {row["kept_as"]: row["memory"] for row in document["activations"]}
    assert kept == {"": "device", "query": "device", "attention": "device", "mlp_up": "host"}
