"""The sharding table: exact bytes, and every tensor that an axis could have cut but does not."""

import math
from dataclasses import replace

import jax
import pytest

from scaling.meshes.devices import abstract_mesh
from scaling.meshes.shape import MeshShape
from scaling.models.accounting import count_parameters
from scaling.models.config import ModelConfig
from scaling.report.shardings import ParameterRow, rows, table, warnings
from scaling.run import Batch, Run
from scaling.run.parallelism.rules import rules_for
from scaling.training.execution import execution_for
from scaling.training.step import abstract_state

MODEL = ModelConfig(64, d_model=32, n_layers=2, n_heads=8, d_ff=64, n_kv_heads=4, bias=True)
GPT = replace(
    MODEL, norm="layernorm", mlp="gelu", positions="learned", max_positions=16, tied_embeddings=True
)
ODD = replace(MODEL, vocab_size=61, qk_norm=True)
WIDE = replace(GPT, vocab_size=65_536)  # one norm is far below a hundredth of it
MESHES = {
    "one": {},
    "data": {"data": 8},
    "fsdp": {"fsdp": 8},
    "tensor": {"tensor": 4},
    "mixed": {"data": 2, "fsdp": 2, "tensor": 2},
    "context": {"context": 4},
    "long": {"context": 2, "fsdp": 2, "tensor": 2},
}
FLOAT32 = 4  # bytes


def table_of(mesh, model=MODEL):
    """Rows of a small model on a mesh that nobody has."""
    run = Run("small", model, Batch(16, 16))
    rules = rules_for(run, mesh)
    with jax.sharding.use_abstract_mesh(abstract_mesh(mesh)):
        state = abstract_state(run, execution_for(run, rules, "cpu"))
    return rows(state.params, rules)


def axes_of(row):
    """Mesh axes that a row's spec names."""
    return [a for entry in row.spec.split(", ") if entry != "-" for a in entry.split("+")]


@pytest.mark.parametrize("model", [MODEL, GPT, ODD], ids=["llama", "gpt", "odd"])
@pytest.mark.parametrize("mesh", MESHES)
def test_bytes_are_those_of_the_shape_and_its_even_cut(mesh, model):
    shape = MeshShape(**MESHES[mesh])
    all_rows = table_of(shape, model)
    for row in all_rows:
        assert row.bytes == math.prod(row.shape) * FLOAT32
        assert row.device_bytes * shape.size(axes_of(row)) == row.bytes
        assert len(row.spec.split(", ")) == len(row.shape)
    assert sum(row.bytes for row in all_rows) == count_parameters(model).total * FLOAT32


@pytest.mark.parametrize("mesh", MESHES)
def test_every_sharding_axis_either_cuts_a_tensor_or_is_called_free(mesh):
    shape = MeshShape(**MESHES[mesh])
    usable = {axis for axis, n in shape.sizes.items() if n > 1 and axis != "data"}
    for row in table_of(shape):
        assert set(axes_of(row)) | set(row.free_axes) == usable
        assert not set(axes_of(row)) & set(row.free_axes)


def named_in(line, row):
    """Whether a warning is about this row: alone at its start, or in the list at its end."""
    return line.startswith(f"{row.name} (") or row.name in line.split(": ")[-1].split(", ")


@pytest.mark.parametrize("model", [GPT, ODD, WIDE], ids=["gpt", "odd", "wide"])
@pytest.mark.parametrize("mesh", MESHES)
def test_every_tensor_with_free_axes_is_in_one_line_that_names_exactly_these(mesh, model):
    all_rows = table_of(MeshShape(**MESHES[mesh]), model)
    lines = warnings(all_rows)
    for row in all_rows:
        said = [line for line in lines if named_in(line, row)]
        assert len(said) == (1 if row.free_axes else 0)
        assert all(f" replicated over {', '.join(row.free_axes)}, which" in line for line in said)


# --- rows made by hand --------------------------------------------------------------------------

LARGE = ParameterRow("large", (100, 10), "fsdp, -", 4000, 500, ())
WHOLE = ParameterRow("whole", (10, 10), "-, -", 400, 400, ("fsdp", "tensor"))
SMALL = ParameterRow("small", (3,), "-", 12, 12, ("fsdp",))
TWIN = ParameterRow("twin", (3,), "-", 12, 12, ("fsdp",))
OTHER = ParameterRow("other", (3,), "-", 12, 12, ("tensor",))


def test_a_tensor_of_a_hundredth_of_the_bytes_has_a_line_of_its_own():
    lines = warnings([LARGE, WHOLE, SMALL, TWIN, OTHER])
    assert lines[0].startswith("whole (") and "over fsdp, tensor, which" in lines[0]
    assert [line.split(": ")[-1] for line in lines[1:]] == ["small, twin", "other"]
    assert lines[1].startswith("2 small tensors (24 B, 0.54% of the parameters)")
    assert "over fsdp, which" in lines[1] and "over tensor, which" in lines[2]


def test_the_table_has_a_line_per_tensor_and_their_sums():
    lines = table([LARGE, WHOLE]).splitlines()
    assert len(lines) == 4
    assert lines[0].split() == ["parameter", "shape", "sharded", "over", "bytes", "bytes/device"]
    assert "100x10" in lines[1] and "fsdp, -" in lines[1]
    assert lines[-1].split() == ["total", "4,400", "900"]
