"""The GPU's program of Muon and Adafactor moves what the table says, to the byte."""

from collections import Counter
from dataclasses import replace

import pytest

from scaling.analytic.communication.table import SMALLEST, expected_bytes
from scaling.meshes import catalog
from scaling.meshes.shape import parse_mesh
from scaling.models.config import Mla, ModelConfig, Moe
from scaling.program.ir import collectives
from scaling.run import Batch, Run
from scaling.train.program import program_of_run

DENSE = ModelConfig(2048, d_model=512, n_layers=4, n_heads=8, head_dim=64, d_ff=1024)
EXPERTS = replace(
    DENSE, mla=Mla(128, 128, 64, 32, 48), moe=Moe(8, 2, 256, n_shared_experts=1, aux_loss=0.1)
)


@pytest.mark.deviceless
@pytest.mark.parametrize(
    ("name", "mesh", "model"),
    [
        ("muon", "data=2,fsdp=2,tensor=2", DENSE),
        pytest.param("muon", "fsdp=8", DENSE, marks=pytest.mark.slow),  # twice as many as layers
        pytest.param("adafactor", "fsdp=4,tensor=2", DENSE, marks=pytest.mark.slow),
        pytest.param("muon", "fsdp=2,stage=2,tensor=2", DENSE, marks=pytest.mark.slow),
        pytest.param("muon", "fsdp=2,expert=2,tensor=2", EXPERTS, marks=pytest.mark.slow),
    ],
)
def test_the_gpu_program_is_the_table(name: str, mesh: str, model: ModelConfig) -> None:
    run, shape = Run("toy", model, Batch(8, 512), optimizer=name), parse_mesh(mesh)
    program, _ = program_of_run(run, shape, catalog.load("dgx-h100"))
    sums: Counter = Counter()
    for call, calls in collectives(program):
        if call.bytes >= SMALLEST:
            sums["+".join(call.axes), call.kind] += call.bytes * calls
    assert dict(sums) == pytest.approx(expected_bytes(run, shape), rel=0.01)
    assert name != "muon" or ("fsdp", "all-to-all") in sums
