"""A checkpoint goes on anywhere: on 8, 4, 6 and 1 devices in turn, and past a full disk."""

import os
import shutil
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import jax
import pytest

from scaling.models.config import ModelConfig
from scaling.run import Batch
from scaling.training.checkpoint.checkpoints import Checkpoints
from scaling.training.run_folder.folder import Options
from scaling.training.run_folder.metrics import read_metrics
from scaling.training.weights.naming import to_dict
from tests.scaling.training.fakes import train

pytestmark = pytest.mark.slow  # they compile for each mesh, or mount a disk
ROOT = Path(__file__).resolve().parents[3]
RTOL = 1e-4  # of losses on another mesh, in fp32
EACH = 2  # steps on each mesh
MESHES = ({"data": 2, "fsdp": 2, "tensor": 2}, {"fsdp": 4}, {"fsdp": 3, "tensor": 2}, {})


@pytest.fixture(scope="module")
def divisible(toy):
    """A toy whose sizes and batch 6 devices can share: divisible(mesh, steps)."""
    model = ModelConfig(256, d_model=48, n_layers=2, n_heads=4, d_ff=96, n_kv_heads=2)

    def make(mesh, steps):
        run = toy(mesh=mesh, steps=steps, checkpoint_every=1)
        # One schedule for all, so that a run may stop early and go on.
        steady = replace(run.train, schedule="constant")
        return replace(run, model=model, batch=Batch(24, 16), train=steady)

    return make


def losses(folder):
    return {line["step"]: line["loss"] for line in read_metrics(folder) if "loss" in line}


def test_a_run_goes_from_8_to_4_to_6_to_1_devices_with_the_losses_and_data_of_one(
    divisible, prepare, tmp_path
):
    for number, mesh in enumerate(MESHES, 1):
        prepared = prepare(divisible(mesh, number * EACH))
        train(*prepared, Options(tmp_path / "travelled", resume=number > 1))
    train(*prepared, Options(tmp_path / "one"))
    found, expected = losses(tmp_path / "travelled"), losses(tmp_path / "one")
    assert found == pytest.approx(expected, rel=RTOL)
    assert list(found) == list(expected)
    plan, programs = prepared
    places = []
    for folder in ("travelled", "one"):
        with jax.set_mesh(plan.mesh), Checkpoints(tmp_path / folder / "checkpoints") as saved:
            places.append(saved.restore(to_dict(programs.state))[1])
    assert places[0] == places[1]


# A full disk

FILLS_UP = """
import os, sys
from pathlib import Path
import jax, numpy as np
from scaling.training.checkpoint.checkpoints import CheckpointError, Checkpoints

folder, spare = Path(sys.argv[1]), int(sys.argv[2])
state = {"weights": jax.random.normal(jax.random.key(0), (256, 256)), "step": jax.numpy.int32(1)}
needed = sum(leaf.nbytes for leaf in jax.tree.leaves(state))
with Checkpoints(folder / "checkpoints") as checkpoints:
    checkpoints.save(1, state, {}, {})
    checkpoints.wait()
    free = os.statvfs(folder).f_bavail * os.statvfs(folder).f_bsize
    (folder / "filler").write_bytes(bytes(free - spare))
    try:
        checkpoints.save(2, state, {}, {})
        checkpoints.wait()
    except CheckpointError as error:
        print(error)
    else:
        sys.exit("the disk did not fill up")
    like = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), state)
    restored, _, _ = checkpoints.restore(like)
    np.testing.assert_array_equal(restored["weights"], state["weights"])
    left = sorted(path.name for path in (folder / "checkpoints").iterdir())
    assert left == [".written", "step_00000001"], left
"""


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0 or shutil.which("unshare") is None,
    reason="a small disk of one's own needs root and unshare (util-linux)",
)
@pytest.mark.parametrize("spare", [8192, 264_000])  # bytes: refused before, or while writing
def test_a_disk_that_is_really_full_leaves_the_checkpoint_before_whole(tmp_path, spare):
    script = tmp_path / "fills_up.py"
    script.write_text(textwrap.dedent(FILLS_UP))
    disk = tmp_path / "disk"
    disk.mkdir()
    small = f"mount -t tmpfs -o size=2m small {disk}"
    command = f"{small} && exec {sys.executable} {script} {disk} {spare}"
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", command],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    if "mount:" in done.stderr and done.returncode:
        pytest.skip(f"no disk of one's own here: {done.stderr}")
    assert done.returncode == 0, done.stderr
    assert "step 2 not saved" in done.stdout and "checkpoint of step 1 is the last" in done.stdout
