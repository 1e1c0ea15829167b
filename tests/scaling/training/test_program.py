"""The program of one of our runs: which things decide it, and that it is found without jax."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from scaling.compile import cache
from scaling.meshes import catalog
from scaling.meshes.errors import InputError
from scaling.meshes.shape import AXES, MeshShape
from scaling.program.ir import Kernel, Program, collectives, kernels
from scaling.run import Run
from scaling.run.recipes import resolve
from scaling.training import program as step
from scaling.training.program import program_of_run

MESH = MeshShape(fsdp=8)
H100 = catalog.load("dgx-h100")
HOST = catalog.load("host")


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SCALING_CACHE", str(tmp_path))
    return tmp_path / "programs"


@pytest.fixture(scope="module")
def tiny() -> Run:
    return resolve("tiny")


def key(run: Run, shape: MeshShape = MESH, cluster=H100, estimates=False, **options) -> str:
    return step._key(run, shape, cluster, estimates, options)


def test_what_does_not_change_the_step_does_not_change_its_key(tiny: Run) -> None:
    assert key(replace(tiny, name="other")) == key(tiny)
    assert key(tiny, cluster=catalog.load("dgx-h100", nodes=4)) == key(tiny)


def test_what_changes_the_step_changes_its_key(tiny: Run, monkeypatch) -> None:
    own = key(tiny)
    others = [
        key(tiny, MeshShape(data=8)),
        key(tiny, MeshShape(fsdp=8, device_order=tuple(reversed(MESH.device_order)))),
        key(tiny, cluster=catalog.load("dgx-a100")),
        key(tiny, cluster=catalog.load("dgx-h100", 1, {"memory": 40e9})),
        key(tiny, cluster=HOST),
        key(tiny, estimates=True),
        key(tiny, xla_gpu_graph_level=0),
        key(replace(tiny, remat="full")),
        key(replace(tiny, batch=replace(tiny.batch, microbatches=2))),
        key(replace(tiny, model=replace(tiny.model, d_ff=64))),
        key(replace(tiny, train=replace(tiny.train, clip_norm=7.0))),
    ]
    monkeypatch.setenv("JAX_ENABLE_X64", "1")
    others.append(key(tiny))
    assert own not in others and len({*others}) == len(others)


def test_a_mesh_decides_the_same_whether_the_run_names_it_or_not(tiny: Run) -> None:
    assert key(replace(tiny, mesh=MESH)) == key(tiny)


def test_how_many_devices_jax_has_here_changes_nothing(tiny: Run, monkeypatch) -> None:
    before = key(tiny)
    monkeypatch.setenv("JAX_PLATFORMS", "something")
    monkeypatch.setenv("JAX_NUM_CPU_DEVICES", "3")
    assert key(tiny) == before


FIND = """
import json, sys
from scaling.meshes import catalog
from scaling.meshes.shape import MeshShape
from scaling.training.program import program_of_run
from scaling.run.recipes import resolve
run, shape = resolve("tiny"), MeshShape(fsdp=8)
program, text = program_of_run(run, shape, catalog.load("dgx-h100"))
heavy = sorted({"jax", "jaxlib", "flax", "optax"} & set(sys.modules))
print(json.dumps([program.name, [s.name for s in program.schedule], text, heavy]))
"""


def test_a_program_in_the_cache_is_found_without_jax(tiny: Run) -> None:
    kept = Program("old name", "compiled", MESH.sizes, (Kernel("k"),))
    cache.store(key(tiny), kept, "HloModule")
    command = [sys.executable, "-c", FIND]
    run = subprocess.run(command, env=dict(os.environ), capture_output=True, text=True, check=True)
    assert json.loads(run.stdout) == ["tiny", ["k"], "HloModule", []]


@pytest.mark.parametrize(
    "change, shape, message",
    [
        ({"optimizer": "sgd"}, MESH, "sgd"),
        ({}, MeshShape(stage=8), "n_layers=2 is not divisible by stage=8"),
        ({}, MeshShape(fsdp=16), "16"),
    ],
)
def test_what_cannot_be_trained_or_does_not_fit_is_refused_before_jax(
    tiny: Run, change: dict, shape: MeshShape, message: str, monkeypatch
) -> None:
    monkeypatch.setattr(step, "_compiled", lambda *_: pytest.fail("compiled"))
    with pytest.raises(InputError, match=message):
        program_of_run(replace(tiny, **change), shape, H100)


@pytest.mark.parametrize("change", [{"vendor": "AMD"}, {"compute_capability": 6.0}])
def test_a_chip_without_such_a_compiler_is_refused(tiny: Run, change: dict) -> None:
    cluster = replace(H100, accelerator=replace(H100.accelerator, **change))
    with pytest.raises(InputError, match="cannot be compiled for without the device"):
        program_of_run(tiny, MESH, cluster)


def test_on_the_host_the_trainers_step_is_read(tiny: Run) -> None:
    shape = MeshShape(fsdp=2, tensor=2)
    program, text = program_of_run(tiny, shape, HOST)
    assert (program.name, program.source, dict(program.mesh)) == ("tiny", "compiled", shape.sizes)
    assert {c.axes for c, _ in collectives(program)} >= {("fsdp",), ("tensor",)}
    assert {k.origin.phase for k, _ in kernels(program)} >= {"forward", "backward", "optimizer"}
    assert text.startswith("HloModule") and program.versions["jax"]
    # Another device order is another program, though it is looked up where the first is kept.
    outer = MeshShape(fsdp=2, tensor=2, device_order=("tensor", *AXES[:-1]))
    assert list(program_of_run(tiny, outer, HOST)[0].mesh) == list(outer.sizes)
    again = program_of_run(replace(tiny, name="other"), shape, HOST)
    assert again == (replace(program, name="other"), text)


@pytest.mark.deviceless
def test_on_gpus_the_run_and_the_jitted_step_are_one_program(tiny: Run, place: Path) -> None:
    """Found by the run, or by the lowered text where only that is the same."""
    program, _ = program_of_run(tiny, MESH, H100)
    assert any(c.asynchronous for c, _ in collectives(program))
    files = set(place.iterdir())
    longer = replace(tiny, train=replace(tiny.train, checkpoint_every=77))
    assert key(longer) != key(tiny)
    assert program_of_run(longer, MESH, H100)[0] == program
    assert len(set(place.iterdir()) - files) == 2  # one more name for it
