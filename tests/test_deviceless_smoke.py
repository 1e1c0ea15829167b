"""One FSDP x TP step is compiled for an H100 that is not here, read, held to its table and priced.

    W   matrices of one layer, E   one table (embedding or head), both over `tensor`: elements
    X   the residual stream of one device, its sequence whole: elements

    fsdp     all-gather       2 W layers + 2 E        forward, again backward
    fsdp     reduce-scatter   W layers + 2 E
    tensor   all-gather       (4 layers + 2) X        attention, MLP: forward, backward;
    tensor   reduce-scatter   (4 layers + 2) X        + 2: embedding and head

A recomputed layer gathers X twice more, for attention and MLP, and scatters it once more. Of what
`experiments.quality` counts, the step has what `test_program_quality` knows, and no more.
"""

import pytest

from experiments.quality import quality_of
from scaling.comparing.audit import audit
from scaling.models.accounting import train_flops
from scaling.training.program import program_of_run
from tests.harness import H100, Case, moved, on_h100, wide

pytestmark = pytest.mark.deviceless
BF16 = 2  # bytes


def test_fsdp_tensor_step_for_h100_moves_its_table_and_takes_possible_time() -> None:
    run = wide(Case("fsdp=4,tensor=2", remat="selective"))
    priced = on_h100(run)
    layers, d = run.model.n_layers, run.model.d_model
    layer = (4 * d * d + 3 * d * run.model.d_ff) / 2 * layers
    table = run.model.vocab_size * d / 2
    stream = run.batch.tokens / 4 * d
    assert moved(priced) == pytest.approx(
        {
            ("fsdp", "all-gather"): BF16 * (2 * layer + 2 * table),
            ("fsdp", "reduce-scatter"): BF16 * (layer + 2 * table),
            ("tensor", "all-gather"): BF16 * (6 * layers + 2) * stream,
            ("tensor", "reduce-scatter"): BF16 * (5 * layers + 2) * stream,
        },
        rel=0.01,  # norms that travel with matrices
    )
    assert audit(priced, run, run.mesh) == []
    flops = train_flops(run.model, run.batch.global_batch, run.batch.seq_len, run.remat)
    least = sum(flops.groups.values()) / run.mesh.devices / H100.accelerator.peak("bf16")
    assert least < priced.timeline.total < 100 * least
    assert 0 < priced.memory.peak < H100.accelerator.memory
    quality = quality_of(priced, program_of_run(run, run.mesh, H100)[1], run, run.mesh)
    assert len(quality.copies) <= 2 and len(quality.float32) <= 2
    assert quality.head == pytest.approx(3) and quality.products < 1.1
