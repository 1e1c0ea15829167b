"""A toy run on text of six words, and its programs, compiled once per session and configuration;
and a step written by hand, for what prices and shows programs."""

import random
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from scaling.meshes.shape import MeshShape
from scaling.models.config import ModelConfig
from scaling.program.ir import Buffer, Collective, Kernel, Loop, Origin, Program, Wait
from scaling.run import Batch, Precision, Run, Train

WORDS = ("alpha ", "beta ", "gamma ", "def ", "return ", "\n")
LOOP_ONLY = {"checkpoint_every": 0, "keep_checkpoints": 2, "eval_every": 0, "eval_batches": 1}


@pytest.fixture(scope="session")
def words_file(tmp_path_factory) -> Path:
    """A text file that a small model learns at once."""
    drawn = random.Random(0).choices(WORDS, k=4000)
    path = tmp_path_factory.mktemp("text") / "words.txt"
    path.write_text("".join(drawn))
    return path


@pytest.fixture(scope="session")
def toy(words_file):
    """Makes the toy run: toy(mesh={"fsdp": 4}, microbatches=2, steps=8, ...)."""
    model = ModelConfig(256, d_model=32, n_layers=2, n_heads=4, d_ff=64, n_kv_heads=2)
    train = Train(steps=8, learning_rate=1e-2, warmup_steps=2, eval_batches=1, data=str(words_file))

    def make(mesh=None, microbatches=1, **changes) -> Run:
        return Run(
            name="toy",
            model=model,
            batch=Batch(global_batch=8, seq_len=16, microbatches=microbatches),
            mesh=MeshShape(**(mesh or {})),
            precision=Precision(compute="fp32"),
            train=replace(train, **changes),
        )

    return make


@pytest.fixture(scope="session")
def prepare():
    """Plan and programs of a run, on the first of the fake devices where its mesh has fewer."""
    import jax

    from scaling.meshes.devices import present_mesh
    from scaling.run.parallelism.rules import rules_for
    from scaling.training.data.sources import open_data
    from scaling.training.execution import execution_for
    from scaling.training.prepare import PreparedRun, compile_programs

    def plan(run: Run) -> PreparedRun:
        rules = rules_for(run, run.mesh)
        mesh = present_mesh(run.mesh, jax.devices()[: run.mesh.devices])
        source = open_data(run.train, run.model.vocab_size, run.batch.seq_len)
        return PreparedRun(run, execution_for(run, rules, "cpu"), mesh, source)

    @cache
    def programs(run: Run):
        return compile_programs(plan(run))

    def prepared(run: Run):
        compiled = programs(replace(run, train=replace(run.train, **LOOP_ONLY)))
        return plan(run), compiled

    return prepared


@pytest.fixture(scope="session")
def hand_priced(hand_step):
    """The step written by hand on one DGX H100, with every event."""
    from scaling.meshes import catalog
    from scaling.profiles.io import profile_of
    from scaling.simulate.step import price

    h100 = catalog.load("dgx-h100")
    return price(hand_step, h100, profile_of(h100.accelerator), record=True)


@pytest.fixture(scope="session")
def hand_step() -> Program:
    """Three layers on fsdp=4, tensor=2: a gather beside a matmul, then a norm; a sum; the update.

    The matmul has 2 x 4096^3 FLOPs, so one call takes 0.14 ms at the bf16 peak of an H100.
    """
    mlp, size = Origin("forward", "layers/mlp"), 4096
    body = (
        Collective("gather.1", mlp, kind="all-gather", axes=("fsdp",), bytes=2**26, dtype="bf16"),
        Kernel(
            "dot.1", mlp, reads=(0,), writes=(2,), kind="matmul", flops=2.0 * size**3,
            bytes=6.0 * size**2, dtype="bf16", dims=(1, size, size, size), estimate=2e-4,
        ),
        Wait("gather.1", mlp),
        Kernel("norm.1", writes=(3,), reads=(2,), vector_flops=1e6, bytes=3e8, dtype="bf16"),
    )  # fmt: skip
    schedule = (
        Loop("while.1", body=body, trips=3),
        Collective(
            "sum.1", Origin("backward", "head"), kind="all-reduce", axes=("fsdp", "tensor"),
            bytes=2**20, dtype="fp32", asynchronous=False, estimate=5e-5,
        ),
        Kernel("adam.1", Origin("optimizer"), reads=(0, 1), writes=(0, 1), bytes=1e9),
    )  # fmt: skip
    buffers = (
        Buffer("weights", 3e9, "parameters", persistent=True),
        Buffer("moments", 6e9, "optimizer_state", persistent=True),
        Buffer("hidden", 2e9, "activations"),
        Buffer("normed", 1e9, "temporary"),
    )
    return Program("hand", "compiled", {"data": 1, "fsdp": 4, "tensor": 2}, schedule, buffers)
