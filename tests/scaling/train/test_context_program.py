"""Over `context` the compiled step moves what the hand-derived table says, and computes no more.

`analytic.communication` is that table; `compare.audit` also compares the FLOPs of matrix products,
and finds collectives that are not in the table. For GPUs the program is compiled without one.
"""

from collections import Counter
from dataclasses import replace

import pytest

from scaling.analytic.communication.table import SMALLEST, expected_bytes
from scaling.compare.audit import audit
from scaling.meshes import catalog
from scaling.meshes.cluster import Cluster
from scaling.meshes.shape import parse_mesh
from scaling.models.config import ModelConfig
from scaling.profiles.io import ideal
from scaling.run import Batch, Context, Precision, Run
from scaling.simulate.step import Priced, price, running_collectives, running_kernels
from scaling.train.program import program_of_run

H100 = catalog.load("dgx-h100")
ROUNDING = 0.01  # vectors that travel in the same instruction as matrices
MODEL = ModelConfig(2048, d_model=512, n_layers=2, n_heads=8, n_kv_heads=4, head_dim=64, d_ff=1024)
GPT = replace(
    MODEL,
    positions="learned",
    max_positions=2048,
    bias=True,
    norm="layernorm",
    mlp="gelu",
)
WINDOW = replace(MODEL, sliding_window=300)  # more than a chunk of 128 on eight devices


@pytest.fixture
def compiled(tmp_path, monkeypatch):
    """The step of a run, priced for eight H100; the folder of programs is the test's own."""
    monkeypatch.setenv("SCALING_CACHE", str(tmp_path))

    def compile_(run: Run, cluster: Cluster = H100) -> Priced:
        program, _ = program_of_run(run, run.mesh, cluster)
        return price(program, H100, ideal())

    return compile_


def run_on(mesh: str, method: str, remat: str, microbatches: int = 1, model=MODEL) -> Run:
    return Run(
        "long",
        model,
        Batch(8 * microbatches, 2048, microbatches),
        parse_mesh(mesh),
        context=Context(method),
        remat=remat,
    )


CASES = {
    "ring": run_on("context=8", "ring", "none"),
    "gather": run_on("context=8", "all-gather", "none"),
    "ring-full": run_on("context=4,tensor=2", "ring", "full"),
    "gather-full": run_on("fsdp=2,context=4", "all-gather", "full"),
    "ring-mixed": run_on("data=2,context=2,tensor=2", "ring", "selective", 2),
    "gather-mixed": run_on("fsdp=2,context=2,tensor=2", "all-gather", "selective", 2),
    "ring-gpt": run_on("data=2,context=4", "ring", "full", model=GPT),
    "ring-window": run_on("context=8", "ring", "selective", model=WINDOW),
}


@pytest.mark.deviceless
@pytest.mark.parametrize("name", CASES)
def test_the_gpu_program_moves_what_the_table_says(compiled, name: str) -> None:
    run = CASES[name]
    assert run.mesh is not None
    priced = compiled(run)
    moved: Counter = Counter()
    for collective, calls in running_collectives(priced):
        if collective.bytes >= SMALLEST:
            moved["+".join(collective.axes), collective.kind] += collective.bytes * calls
    assert dict(moved) == pytest.approx(expected_bytes(run, run.mesh), rel=ROUNDING)
    assert audit(priced, run, run.mesh) == []  # FLOPs of flash attention's calls included
    flash = [kernel for kernel, _ in running_kernels(priced) if kernel.kind == "attention"]
    assert flash


@pytest.mark.parametrize(
    ("method", "remat"),
    [("ring", "selective"), pytest.param("all-gather", "none", marks=pytest.mark.slow)],
)
def test_the_cpu_program_moves_and_computes_what_was_asked(compiled, method, remat) -> None:
    run = Run(
        "long",
        ModelConfig(1024, d_model=64, n_layers=2, n_heads=8, n_kv_heads=4, d_ff=128),
        Batch(8, 256),
        parse_mesh("data=2,context=2,tensor=2"),
        context=Context(method),
        precision=Precision("fp32"),
        remat=remat,
    )
    host = catalog.load("host")
    assert audit(replace(compiled(run, host), cluster=host), run, run.mesh) == []
